//! `gatun peer`: a pair of boxes.

pub(crate) mod certificates;
mod drill;
mod requests;

pub(crate) use requests::{owns_addresses, summary};

use std::process::ExitCode;

const EXAMPLES: &str = "\
Two boxes of a pair have the same sessions, and own public addresses together: [peer] in the \
configuration. They know each other by certificates of an authority of their own. docs/tutorials/pair.md \
shows a pair from start to finish.

Examples:
  gatun peer init pair          the authority, and files for both members
  scp pair/a/* root@first:/etc/gatun/peer/
                                then pair/b/* to the other box
  gatun peer status             state, and owner of each public address
  gatun peer release            before maintenance of this box
  gatun peer drill              hands over and back, and reports
  gatun peer renew pair/authority /etc/gatun/peer
                                new certificate in place of the old one
  systemctl reload gatun        uses it for the next connection

Keep pair/authority where nobody else can read it: its key lets others join the pair.
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

/// Action.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the state of the pair; the exit status tells if both boxes have the same sessions
    Status(requests::Status),
    /// Give this box's public addresses to the other box
    Release(requests::Release),
    /// Declare the other box gone, and own all public addresses
    Takeover(requests::Takeover),
    /// Hand all public addresses over to the other box and back, and report
    Drill(drill::Drill),
    /// Create the pair's authority, and certificates for both members
    Init(certificates::Init),
    /// Replace a member's certificate and key by new ones of the same authority
    Renew(certificates::Renew),
}

/// # Errors
/// Returns an error if a file cannot be read or written, or if the daemon does not answer or refuses.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Status(args) => return requests::status(&args),
        Action::Release(args) => return requests::release(&args),
        Action::Takeover(args) => return requests::take_over(&args),
        Action::Drill(args) => return drill::execute(&args),
        Action::Init(args) => certificates::init(&args)?,
        Action::Renew(args) => certificates::renew(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
