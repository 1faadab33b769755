//! Prints the loads of a cluster's nodes: `cargo run --release -p gatun-cluster-model --bin gatun-scaling`.

#![forbid(unsafe_code)]

fn main() {
    println!("{}", gatun_cluster_model::scaling::table().join("\n"));
}
