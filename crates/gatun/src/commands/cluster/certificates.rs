//! `gatun cluster init`, `add` and `renew`: certificates of the nodes.

use crate::commands::certificates::{AUTHORITY, Authority, MEMBER_DAYS, Owners, service_user};
use crate::commands::print_bytes;
use anyhow::ensure;
use gatun_config::{CLUSTER_DIRECTORY, node_certificate_name};
use std::path::{Path, PathBuf};

const OWNERS: Owners =
    Owners { command: "gatun cluster", authority: "Gatun cluster authority", member: "Gatun cluster node" };

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub(super) struct Init {
    /// Directory to create
    directory: PathBuf,
    /// Names of the nodes, as in [[cluster.nodes]]
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Validity of the nodes' certificates
    #[arg(long, default_value_t = MEMBER_DAYS, value_parser = clap::value_parser!(u32).range(1..=7_300))]
    days: u32,
}

/// Arguments of `add`.
#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// Directory, as `init` has made it
    directory: PathBuf,
    /// Names of the further nodes
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Validity of the nodes' certificates
    #[arg(long, default_value_t = MEMBER_DAYS, value_parser = clap::value_parser!(u32).range(1..=7_300))]
    days: u32,
}

/// Arguments of `renew`.
#[derive(Debug, clap::Args)]
pub(super) struct Renew {
    /// Directory of the authority, as `init` has made it
    authority: PathBuf,
    /// Name of the node
    node: String,
    /// Directory with the files of the node; by default that beside the authority with the node's name
    directory: Option<PathBuf>,
    /// Validity of the certificate
    #[arg(long, default_value_t = MEMBER_DAYS, value_parser = clap::value_parser!(u32).range(1..=7_300))]
    days: u32,
}

/// Creates the authority and the nodes' files, and says where they belong.
pub(super) fn init(args: &Init) -> anyhow::Result<()> {
    let names = names(&args.nodes)?;
    let authority = Authority::create(&OWNERS, &args.directory)?;
    let created = issue(&authority, &args.directory, &names, args.days)?;
    let (directory, user) = (args.directory.display(), service_user(CLUSTER_DIRECTORY));
    let text = format!(
        "created {directory}/authority\n{created}\
         Copy the files of each directory to {CLUSTER_DIRECTORY} of its node.\n{user}\
         Keep {directory}/authority for `gatun cluster add` and `renew`, where nobody else can read it.\n"
    );
    print_bytes(text.as_bytes())?;
    Ok(())
}

/// Creates the files of further nodes.
pub(super) fn add(args: &Add) -> anyhow::Result<()> {
    let names = names(&args.nodes)?;
    let authority = Authority::read(&OWNERS, &args.directory.join(AUTHORITY))?;
    let created = issue(&authority, &args.directory, &names, args.days)?;
    let text = format!("{created}Copy the files of each directory to {CLUSTER_DIRECTORY} of its node.\n");
    print_bytes(text.as_bytes())?;
    Ok(())
}

/// Replaces the certificate of a node.
pub(super) fn renew(args: &Renew) -> anyhow::Result<()> {
    let names = names(std::slice::from_ref(&args.node))?;
    let authority = Authority::read(&OWNERS, &args.authority)?;
    let beside = || args.authority.parent().unwrap_or(Path::new(".")).join(&args.node);
    let directory = args.directory.clone().unwrap_or_else(beside);
    names.iter().try_for_each(|(_, name)| authority.renew(&directory, name, args.days))
}

/// Nodes, and the names in their certificates.
fn names(nodes: &[String]) -> anyhow::Result<Vec<(&str, String)>> {
    let name = |node: &String| {
        ensure!(
            node != AUTHORITY,
            "\"{AUTHORITY}\" is the name of the authority's directory: choose another one"
        );
        node_certificate_name(node).map_err(anyhow::Error::msg)
    };
    nodes.iter().map(|node| Ok((&node[..], name(node)?))).collect()
}

/// Creates the files of nodes. Returns lines about them.
fn issue(
    authority: &Authority,
    directory: &Path,
    nodes: &[(&str, String)],
    days: u32,
) -> anyhow::Result<String> {
    let mut lines = String::new();
    for (node, name) in nodes {
        let directory = directory.join(node);
        authority.add(&directory, name, days)?;
        lines += &format!("created {}\n", directory.display());
    }
    Ok(lines)
}
