//! `gatun web`: the web page of a running daemon, on this host.

use anyhow::{Context as _, bail};
use gatun_api::client::Client;
use gatun_api::types::Status;
use gatun_web::forward::{self, Setup};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
It shows what the daemon does and answers questions; it changes nothing. The address
that it prints has a key in it, another one each time: whoever has that may read
what `gatun show` tells. Ctrl-C ends it; the daemon does not notice.

From another computer, through SSH: ssh -L 8642:127.0.0.1:8642 HOST, and there open
the address that gatun web prints on HOST.

Examples:
  gatun web
  gatun web --listen 127.0.0.1:9000
  gatun web --listen [::1]:0               a port that is free
";

/// Random bytes of a key.
const KEY_LEN: usize = 16;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8642")]
    listen: SocketAddr,
    /// Allow an address that others can reach: what is shown, and the key, pass the network as they are
    #[arg(long)]
    unencrypted: bool,
    /// A name of this host that browsers may call it by, beside its addresses and localhost
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// The daemon's socket: the path that `listen` in its `api` section says
    #[arg(long, value_name = "PATH", default_value = gatun_api::SOCKET)]
    socket: PathBuf,
}

/// # Errors
/// Where it cannot listen there, or may not.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let is_here = args.listen.ip().is_loopback();
    if !is_here && !args.unencrypted {
        bail!(
            "others can reach {}, and what is shown would pass the network unencrypted: listen on 127.0.0.1 and come \
             through SSH (gatun web --help says how), or say --unencrypted",
            args.listen.ip()
        );
    }
    let listener =
        TcpListener::bind(args.listen).with_context(|| format!("cannot listen at {}", args.listen))?;
    let at = listener.local_addr()?;
    let key = key()?;
    if !is_here {
        eprintln!("gatun: warning: who can listen in on the way to {} sees all of it, and the key", at.ip());
    }
    // It may come later; a wrong path or a missing right is better known now.
    if let Err(error) = Client::new(&args.socket).get::<Status>("/v1/status") {
        eprintln!("gatun: {error}; the page waits for it");
    }
    gatun_daemon::serve_page_only(&args.socket)?;
    super::print_bytes(format!("http://{at}/#key={key}\n").as_bytes())?;
    forward::serve(listener, Setup { socket: args.socket, key, names: args.name })?;
    Ok(ExitCode::SUCCESS)
}

/// What nobody guesses.
fn key() -> anyhow::Result<String> {
    let mut bytes = [0; KEY_LEN];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    anyhow::ensure!(filled == KEY_LEN, "the system has no random numbers");
    Ok(gatun_api::hex::encode(&bytes))
}
