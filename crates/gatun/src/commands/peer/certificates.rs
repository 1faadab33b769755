//! `gatun peer init` and `gatun peer renew`: certificates of a pair of boxes.

use crate::commands::certificates::{Authority, MEMBER_DAYS, Owners, service_user};
use crate::commands::print_bytes;
use gatun_config::PEER_DIRECTORY;
use gatun_peer::tls::SERVER_NAME;
use std::path::{Path, PathBuf};

const OWNERS: Owners =
    Owners { command: "gatun peer", authority: "Gatun pair authority", member: "Gatun pair member" };

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub(super) struct Init {
    /// Directory to create
    directory: PathBuf,
    /// Validity of the members' certificates
    #[arg(long, default_value_t = MEMBER_DAYS, value_parser = clap::value_parser!(u32).range(1..=7_300))]
    days: u32,
}

/// Arguments of `renew`.
#[derive(Debug, clap::Args)]
pub(super) struct Renew {
    /// Directory of the authority, as `init` has made it
    authority: PathBuf,
    /// Directories with the files of a member
    #[arg(required = true)]
    members: Vec<PathBuf>,
    /// Validity of the certificate
    #[arg(long, default_value_t = MEMBER_DAYS, value_parser = clap::value_parser!(u32).range(1..=7_300))]
    days: u32,
}

/// Creates the authority and the members' files, and says where they belong.
pub(super) fn init(args: &Init) -> anyhow::Result<()> {
    create(&args.directory, args.days)?;
    let (directory, user) = (args.directory.display(), service_user(PEER_DIRECTORY));
    let text = format!(
        "created {directory}/authority, {directory}/a and {directory}/b.\n\
         Copy the files of {directory}/a to {PEER_DIRECTORY} of one box, those of {directory}/b to the other \
         one.\n{user}\
         Keep {directory}/authority for `gatun peer renew`, where nobody else can read it.\n"
    );
    print_bytes(text.as_bytes())?;
    Ok(())
}

/// Creates the authority in `authority`, and the members' files in `a` and `b` of a new directory.
///
/// # Errors
/// Returns an error if the directory exists, or cannot be written.
pub(crate) fn create(directory: &Path, days: u32) -> anyhow::Result<()> {
    let authority = Authority::create(&OWNERS, directory)?;
    ["a", "b"].iter().try_for_each(|member| authority.add(&directory.join(member), SERVER_NAME, days))
}

/// Replaces certificates.
pub(super) fn renew(args: &Renew) -> anyhow::Result<()> {
    let authority = Authority::read(&OWNERS, &args.authority)?;
    args.members.iter().try_for_each(|member| authority.renew(member, SERVER_NAME, args.days))
}
