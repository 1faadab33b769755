//! `gatun init`: a small configuration file, from flags or from the answers to questions.

use anyhow::Context as _;
use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
On a terminal, what no flag says is asked. Elsewhere, the defaults in brackets are taken.

Examples:
  gatun init                                          ask, and write gatun.toml
  gatun init --pool4 192.0.2.0/28 --output /etc/gatun.toml
  gatun init --mode siit --pool6 2001:db8:46::/96 --eam 203.0.113.5=2001:db8::5
  gatun init --pool4 192.0.2.0/28 --output -          to standard output
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// nat64: many IPv6 hosts share a few IPv4 addresses. siit: one address for one, without state [default: nat64]
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Translation prefix: IPv4 addresses inside IPv6 [64:ff9b::/96; for siit 2001:db8:46::/96]
    #[arg(long, value_name = "PREFIX")]
    pool6: Option<String>,
    /// Public IPv4 addresses for nat64: a prefix, an address, or a range; may be repeated [192.0.2.0/28]
    #[arg(long, value_name = "PREFIX")]
    pool4: Vec<String>,
    /// Mapping for siit; may be repeated [203.0.113.5=2001:db8::5]
    #[arg(long, value_name = "V4=V6")]
    eam: Vec<String>,
    /// The file to write; `-` is standard output
    #[arg(long, short, default_value = "gatun.toml", value_name = "FILE")]
    output: PathBuf,
    /// Write over a file that exists
    #[arg(long)]
    force: bool,
}

/// What kind of translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    Nat64,
    Siit,
}

/// Writes the file.
///
/// # Errors
/// Where an answer is wrong, or the file exists or cannot be written.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let to_stdout = args.output.as_os_str() == "-";
    if !to_stdout && !args.force {
        refuse_existing(&args)?;
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let text = match terminal {
        true => {
            compose(&args, &mut |question, default| ask(&mut std::io::stdin().lock(), question, default))?
        }
        false => compose(&args, &mut |_, default| Ok(default.to_owned()))?,
    };
    if let Err(report) = gatun_config::load_str(&text, "(answers)") {
        anyhow::bail!("these answers make no configuration:\n{}", report.pretty(false));
    }
    if to_stdout {
        super::print_bytes(text.as_bytes())?;
    } else {
        write(&args, &text)?;
        let file = args.output.display();
        eprintln!("{file} is written. Next: gatun check {file}, then gatun run {file}");
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse_existing(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(!args.output.exists(), "{} exists; --force writes over it", args.output.display());
    Ok(())
}

/// Without `--force`, a file that appears meanwhile is not written over either.
fn write(args: &Args, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    match args.force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let mut file =
        options.open(&args.output).with_context(|| format!("cannot write {}", args.output.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", args.output.display()))
}

/// The file's text; `ask` is given a question and a default.
fn compose(args: &Args, ask: &mut dyn FnMut(&str, &str) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let mode = match args.mode {
        Some(mode) => mode,
        None => match ask("nat64 (many hosts share addresses) or siit (one address for one)?", "nat64")?
            .as_str()
        {
            "nat64" => Mode::Nat64,
            "siit" => Mode::Siit,
            other => anyhow::bail!("\"{other}\" is neither nat64 nor siit"),
        },
    };
    match mode {
        Mode::Nat64 => {
            anyhow::ensure!(args.eam.is_empty(), "--eam is for --mode siit");
            let pool6 = answer(&args.pool6, ask, "Translation prefix?", "64:ff9b::/96")?;
            let pool4 =
                answers(&args.pool4, ask, "Public IPv4 addresses (with commas between)?", "192.0.2.0/28")?;
            Ok(nat64_text(&pool6, &pool4))
        }
        Mode::Siit => {
            anyhow::ensure!(args.pool4.is_empty(), "--pool4 is for --mode nat64");
            let pool6 = answer(&args.pool6, ask, "Translation prefix?", "2001:db8:46::/96")?;
            let question = "Mappings, IPv4=IPv6 (with commas between)?";
            siit_text(&pool6, &answers(&args.eam, ask, question, "203.0.113.5=2001:db8::5")?)
        }
    }
}

fn answer(
    flag: &Option<String>,
    ask: &mut dyn FnMut(&str, &str) -> anyhow::Result<String>,
    question: &str,
    default: &str,
) -> anyhow::Result<String> {
    flag.as_ref().map_or_else(|| ask(question, default), |given| Ok(given.clone()))
}

fn answers(
    flags: &[String],
    ask: &mut dyn FnMut(&str, &str) -> anyhow::Result<String>,
    question: &str,
    default: &str,
) -> anyhow::Result<Vec<String>> {
    let all = if flags.is_empty() { ask(question, default)? } else { flags.join(",") };
    Ok(all.split(',').map(|one| one.trim().to_owned()).collect())
}

fn nat64_text(pool6: &str, pool4: &[String]) -> String {
    let prefixes: Vec<String> = pool4.iter().map(|prefix| quoted(prefix)).collect();
    format!(
        "{HEAD}
# The public IPv4 addresses, and the ports of them that inside hosts get.
[[pool]]
name = \"public\"
prefixes = [{}]
ports = \"1024-65535\"

# IPv6 hosts reach the IPv4 address a.b.c.d as the IPv6 address with a.b.c.d inside this prefix.
[[nat64]]
name = \"nat64\"
pool6 = {}
pool = \"public\"

# Connections from outside to an inside host, where wanted:
# static = [{{ protocol = \"tcp\", inside = \"[2001:db8::1]:80\", outside = \"192.0.2.1:80\" }}]

# [limits]
# sessions_max = 262_144
",
        prefixes.join(", "),
        quoted(pool6)
    )
}

fn siit_text(pool6: &str, mappings: &[String]) -> anyhow::Result<String> {
    let mut eam = String::new();
    for mapping in mappings {
        let (v4, v6) = mapping.split_once('=').with_context(|| {
            format!("\"{mapping}\" is not of the form IPv4=IPv6, for example 203.0.113.5=2001:db8::5")
        })?;
        // Writing to a String does not fail.
        let _ = writeln!(eam, "    {{ v4 = {}, v6 = {} }},", quoted(v4.trim()), quoted(v6.trim()));
    }
    Ok(format!(
        "{HEAD}
# The translator's own addresses: it answers pings to them, and its ICMP errors come from them.
[translator]
own4 = \"192.0.0.8\"   # the dummy address of RFC 7600; better one of yours
own6 = \"2001:db8::1\" # an example: write one of yours

# IPv4 hosts are seen from IPv6 inside pool6; IPv6 hosts are seen from IPv4 as eam says.
[[siit]]
name = \"siit\"
pool6 = {}
eam = [
{eam}]
",
        quoted(pool6)
    ))
}

const HEAD: &str = "\
# Gatun's configuration. `gatun check` says what is wrong with it, docs/configuration.md lists every key.

# The TUN device. Routes to the prefixes below are added to it.
[[port]]
device = \"gatun0\"
routes = \"auto\"
";

/// A TOML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Asks on standard error, so that `--output -` can be redirected.
fn ask(input: &mut dyn BufRead, question: &str, default: &str) -> anyhow::Result<String> {
    eprint!("{question} [{default}] ");
    let mut line = String::new();
    anyhow::ensure!(input.read_line(&mut line)? > 0, "no answer");
    let line = line.trim();
    Ok(if line.is_empty() { default.to_owned() } else { line.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(mode: Option<Mode>) -> Args {
        Args { mode, pool6: None, pool4: Vec::new(), eam: Vec::new(), output: "-".into(), force: false }
    }

    #[test]
    fn what_is_written_is_accepted_for_every_mode_and_answer() {
        for mode in [None, Some(Mode::Nat64), Some(Mode::Siit)] {
            let text = compose(&args(mode), &mut |_, default| Ok(default.to_owned())).unwrap();
            let (_, warnings) =
                gatun_config::load_str(&text, "gatun.toml").unwrap_or_else(|r| panic!("{text}\n{r}"));
            assert!(warnings.is_empty(), "{text}\n{warnings}");
        }
    }

    #[test]
    fn answers_reach_the_plan() {
        let mut questions = 0;
        let mut answer = |question: &str, _: &str| {
            questions += 1;
            Ok(match question {
                q if q.starts_with("nat64") => "nat64".to_owned(),
                q if q.starts_with("Translation") => "2001:db8:64::/96".to_owned(),
                _ => "192.0.2.1, 198.51.100.0/30".to_owned(),
            })
        };
        let text = compose(&args(None), &mut answer).unwrap();
        let (config, _) = gatun_config::load_str(&text, "gatun.toml").unwrap();
        assert_eq!(config.plan.nat64[0].pool6[0].to_string(), "2001:db8:64::/96");
        assert_eq!(config.plan.pools[0].ranges.len(), 2);
        assert_eq!(questions, 3);
    }

    #[test]
    fn a_text_in_an_answer_cannot_leave_its_quotes() {
        let mut given = args(Some(Mode::Nat64));
        given.pool6 = Some("64:ff9b::/96\"\n[limits]\nsessions_max = 1 #".to_owned());
        let text = compose(&given, &mut |_, default| Ok(default.to_owned())).unwrap();
        assert!(gatun_config::load_str(&text, "gatun.toml").is_err());
    }
}
