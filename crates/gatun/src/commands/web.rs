//! `gatun web`: serves the web page of a running daemon on this host.

use anyhow::{Context as _, bail};
use gatun_api::client::Client;
use gatun_api::types::Status;
use gatun_web::forward::{self, Setup};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
The page is read-only. The printed address contains a new key each time; whoever has it \
can read what `gatun show` prints. Ctrl-C stops it and does not affect the daemon.

From another computer, use SSH: ssh -L 8642:127.0.0.1:8642 HOST, then open the address \
that gatun web prints on HOST.

Examples:
  gatun web
  gatun web --listen 127.0.0.1:9000
  gatun web --listen [::1]:0               any free port
";

/// Random bytes of a key.
const KEY_LEN: usize = 16;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Listen address
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8642")]
    listen: SocketAddr,
    /// Allow an address that other hosts can reach; data and key are sent unencrypted
    #[arg(long)]
    unencrypted: bool,
    /// Further host name that browsers may use for this host
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Unix socket of the daemon, as in `[api] listen`
    #[arg(long, value_name = "PATH", default_value = gatun_api::SOCKET)]
    socket: PathBuf,
}

/// # Errors
/// Returns an error if the address cannot be used or is not allowed.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let is_here = args.listen.ip().is_loopback();
    if !is_here && !args.unencrypted {
        bail!(
            "other hosts can reach {}, and traffic is not encrypted: listen on 127.0.0.1 and use SSH \
             (see gatun web --help), or pass --unencrypted",
            args.listen.ip()
        );
    }
    let listener =
        TcpListener::bind(args.listen).with_context(|| format!("cannot listen at {}", args.listen))?;
    let at = listener.local_addr()?;
    let key = key()?;
    if !is_here {
        eprintln!("gatun: warning: traffic to {}, including the key, is not encrypted", at.ip());
    }
    // The daemon may start later; a wrong path or a missing permission is reported now.
    if let Err(error) = Client::new(&args.socket).get::<Status>("/v1/status") {
        eprintln!("gatun: {error}; the page will wait for the daemon");
    }
    gatun_daemon::serve_page_only(&args.socket)?;
    super::print_bytes(format!("http://{at}/#key={key}\n").as_bytes())?;
    forward::serve(listener, Setup { socket: args.socket, key, names: args.name })?;
    Ok(ExitCode::SUCCESS)
}

/// Generates a random key.
fn key() -> anyhow::Result<String> {
    let mut bytes = [0; KEY_LEN];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    anyhow::ensure!(filled == KEY_LEN, "cannot read random numbers from the system");
    Ok(gatun_api::hex::encode(&bytes))
}
