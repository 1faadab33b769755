//! Three members of etcd, which are killed, stopped and started again, and the network of three boxes.

use gatun_testkit::{EtcdMembers, EtcdPlace, Namespace, PairNetwork, missing, refusal, run_test};
use std::path::Path;

#[test]
fn a_cluster_of_etcd_goes_on_without_one_member_and_takes_it_back() {
    let test = "a_cluster_of_etcd_goes_on_without_one_member_and_takes_it_back";
    let needed = || missing(&[("etcd", "etcd-server"), ("etcdctl", "etcd-client")]);
    run_test(
        test,
        || refusal().or_else(needed),
        || {
            let host = Namespace::new("etcd").unwrap();
            let place = |n: u16| EtcdPlace {
                host: Some(&host),
                client: ([127, 0, 0, 1], 2_379 + 10 * n).into(),
                peer: ([127, 0, 0, 1], 2_380 + 10 * n).into(),
            };
            let mut etcd = EtcdMembers::start((0..3).map(place).collect(), Path::new("/run/etcd")).unwrap();
            etcd.control(0, &["put", "/a", "1"]).unwrap();
            etcd.kill(0).unwrap();
            assert!(etcd.kill(0).is_err(), "it does not run");
            let of_second =
                |etcd: &EtcdMembers<'_>, key| etcd.control(1, &["get", key, "--print-value-only"]);
            assert_eq!(of_second(&etcd, "/a").unwrap(), "1\n");
            etcd.control(2, &["put", "/a", "2"]).unwrap();
            etcd.stop(2, true).unwrap();
            // One of three is no majority.
            assert!(of_second(&etcd, "/a").is_err());
            etcd.stop(2, false).unwrap();
            etcd.start_member(0).unwrap();
            etcd.wait_ready().unwrap();
            assert_eq!(etcd.control(0, &["get", "/a", "--print-value-only"]).unwrap(), "2\n");
        },
    );
}

#[test]
fn three_boxes_reach_each_other_and_routers_learn_which_one_to_use() {
    let test = "three_boxes_reach_each_other_and_routers_learn_which_one_to_use";
    let needed = || missing(&[("etcd", "etcd-server"), ("etcdctl", "etcd-client"), ("bird", "bird2")]);
    run_test(
        test,
        || refusal().or_else(needed),
        || {
            let net = PairNetwork::with_boxes(3).unwrap();
            let place = |(host, n)| EtcdPlace {
                host: Some(host),
                client: ([10, 0, 9, n], 2_379).into(),
                peer: ([10, 0, 9, n], 2_380).into(),
            };
            let etcd =
                EtcdMembers::start(net.boxes.iter().zip(1..).map(place).collect(), Path::new("/run/etcd"));
            etcd.unwrap().control(2, &["put", "/a", "1"]).unwrap();
            net.boxes[1].ip("addr add 10.0.8.2/32 dev lo").unwrap();
            net.boxes[2].run("ping -c 1 -W 5 10.0.8.2").unwrap();
            // The last box announces.
            net.boxes[2].ip("route add 192.0.2.0/30 dev lo table 186").unwrap();
            net.boxes[2].ip("-6 route add 2001:db8:64::/96 dev lo table 186").unwrap();
            net.wait_until_used(2, "192.0.2.1").unwrap();
        },
    );
}
