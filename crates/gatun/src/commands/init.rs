//! `gatun init`: creates a configuration file from flags or from answers.

mod pair;

use anyhow::Context as _;
use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
On a terminal, missing values are asked for. Elsewhere, the defaults in brackets apply.

Examples:
  gatun init                                    ask questions, write gatun.toml
  gatun init --pool4 192.0.2.0/28 --output /etc/gatun.toml
  gatun init --mode nat44 --inside 100.64.0.0/10 --pool4 192.0.2.0/28
  gatun init --mode siit --pool6 2001:db8:46::/96 --eam 203.0.113.5=2001:db8::5
  gatun init --pool4 192.0.2.0/28 --output -    to standard output
  gatun init --pair 10.0.0.1,10.0.0.2           two boxes, in the directory pair
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Kind: nat64 or nat44 (many hosts share addresses), or siit (one to one) [default: nat64]
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Translation prefix for nat64 and siit [64:ff9b::/96; siit: 2001:db8:46::/96]
    #[arg(long, value_name = "PREFIX")]
    pool6: Option<String>,
    /// Public IPv4 prefix, address or range for nat64 and nat44; may be repeated [192.0.2.0/28]
    #[arg(long, value_name = "PREFIX")]
    pool4: Vec<String>,
    /// Private network for nat44; may be repeated [100.64.0.0/10]
    #[arg(long, value_name = "PREFIX")]
    inside: Vec<String>,
    /// Mapping for siit; may be repeated [203.0.113.5=2001:db8::5]
    #[arg(long, value_name = "V4=V6")]
    eam: Vec<String>,
    /// Two boxes that back each other, by the addresses at which they reach each other [port 7464]
    #[arg(long, value_name = "ADDRESS,ADDRESS")]
    pair: Option<pair::Pair>,
    /// File to write; `-` is standard output. With --pair, the directory to create [gatun.toml; pair]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

/// Kind of translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    Nat64,
    Nat44,
    Siit,
}

/// Writes the file.
///
/// # Errors
/// Returns an error if an answer is invalid, or if the file exists or cannot be written.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(pair) = &args.pair {
        pair.check(&args)?;
    }
    let output = args.output.clone().unwrap_or_else(|| "gatun.toml".into());
    let to_stdout = output.as_os_str() == "-";
    if !to_stdout && !args.force && args.pair.is_none() {
        refuse_existing(&output)?;
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let text = match terminal {
        true => {
            compose(&args, &mut |question, default| ask(&mut std::io::stdin().lock(), question, default))?
        }
        false => compose(&args, &mut |_, default| Ok(default.to_owned()))?,
    };
    if let Err(report) = gatun_config::load_str(&text, "(answers)") {
        anyhow::bail!("invalid configuration from these answers:\n{}", report.pretty(false));
    }
    if let Some(pair) = &args.pair {
        pair.write(&args, &text)?;
    } else if to_stdout {
        super::print_bytes(text.as_bytes())?;
    } else {
        write(&output, args.force, &text)?;
        let file = output.display();
        eprintln!("created {file}. Next: gatun check {file}, then gatun run {file}");
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse_existing(output: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(!output.exists(), "{} exists; pass --force to overwrite it", output.display());
    Ok(())
}

/// Writes the file; without `force`, one that appears meanwhile is not overwritten either.
fn write(output: &Path, force: bool, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    match force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let context = || format!("cannot write {}", output.display());
    let mut file = options.open(output).with_context(context)?;
    super::give_to_owner_of_directory(&file, output);
    file.write_all(text.as_bytes()).with_context(context)
}

/// Default pool.
const POOL4: &str = "192.0.2.0/28";

/// Function that asks a question with a default and returns the answer.
type Ask<'a> = dyn FnMut(&str, &str) -> anyhow::Result<String> + 'a;

/// Composes the text of the file.
///
/// # Errors
/// Returns an error if a flag is invalid. Invalid answers are asked for again.
fn compose(args: &Args, ask: &mut Ask<'_>) -> anyhow::Result<String> {
    let mode = match args.mode {
        Some(mode) => mode,
        None => ask_until(
            ask,
            "nat64 or nat44 (many hosts share addresses), or siit (one address for one)?",
            "nat64",
            mode,
        )?,
    };
    anyhow::ensure!(mode == Mode::Nat44 || args.inside.is_empty(), "--inside is for --mode nat44");
    match mode {
        Mode::Nat44 => {
            anyhow::ensure!(args.eam.is_empty(), "--eam is for --mode siit");
            anyhow::ensure!(args.pool6.is_none(), "--pool6 is for --mode nat64 and --mode siit");
            let inside = Question("Private networks (comma-separated)?", "100.64.0.0/10").answer(
                &args.inside,
                ask,
                |inside| check(nat44_text(inside, POOL4)),
            )?;
            let text = |pool4: &str| check(nat44_text(&inside, pool4));
            let question = Question("Public IPv4 addresses (comma-separated)?", POOL4);
            Ok(nat44_text(&inside, &question.answer(&args.pool4, ask, text)?))
        }
        Mode::Nat64 => {
            anyhow::ensure!(args.eam.is_empty(), "--eam is for --mode siit");
            let pool6 =
                Question("Translation prefix?", "64:ff9b::/96")
                    .answer(&one(&args.pool6), ask, |pool6| check(nat64_text(pool6, POOL4)))?;
            let text = |pool4: &str| check(nat64_text(&pool6, pool4));
            let pool4 =
                Question("Public IPv4 addresses (comma-separated)?", POOL4).answer(&args.pool4, ask, text)?;
            Ok(nat64_text(&pool6, &pool4))
        }
        Mode::Siit => {
            const EAM: &str = "203.0.113.5=2001:db8::5";
            anyhow::ensure!(args.pool4.is_empty(), "--pool4 is for --mode nat64 and --mode nat44");
            let pool6 = Question("Translation prefix?", "2001:db8:46::/96").answer(
                &one(&args.pool6),
                ask,
                |pool6| check(siit_text(pool6, EAM)?),
            )?;
            let text = |eam: &str| check(siit_text(&pool6, eam)?);
            let eam = Question("Mappings, IPv4=IPv6 (comma-separated)?", EAM).answer(&args.eam, ask, text)?;
            siit_text(&pool6, &eam)
        }
    }
}

/// Question and its default answer.
struct Question(&'static str, &'static str);

impl Question {
    /// Value of the flag, or an answer that `check` accepts.
    fn answer(
        &self,
        flags: &[String],
        ask: &mut Ask<'_>,
        check: impl Fn(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        let Question(question, default) = self;
        if !flags.is_empty() {
            let given = flags.join(",");
            return check(&given).map(|()| given);
        }
        ask_until(ask, question, default, |answer| check(answer).map(|()| answer.to_owned()))
    }
}

/// Asks until `read` accepts the answer. The default is always accepted.
fn ask_until<T>(
    ask: &mut Ask<'_>,
    question: &str,
    default: &str,
    read: impl Fn(&str) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    loop {
        match read(&ask(question, default)?) {
            Ok(value) => return Ok(value),
            Err(why) => eprintln!("  {why}"),
        }
    }
}

fn mode(answer: &str) -> anyhow::Result<Mode> {
    match answer.to_ascii_lowercase().as_str() {
        "nat64" => Ok(Mode::Nat64),
        "nat44" => Ok(Mode::Nat44),
        "siit" => Ok(Mode::Siit),
        _ => anyhow::bail!("\"{answer}\" is not a kind of translation: expected nat64, nat44 or siit"),
    }
}

/// Checks the text of a file and returns its first error.
fn check(text: String) -> anyhow::Result<()> {
    let Err(report) = gatun_config::load_str(&text, "(answers)") else { return Ok(()) };
    let wrong = report.iter().find(|p| p.severity == gatun_config::Severity::Error);
    let (what, instead) = wrong.map_or(("no configuration", None), |p| (p.what, p.instead));
    Err(anyhow::anyhow!("{what}{}{}", if instead.is_some() { "; " } else { "" }, instead.unwrap_or_default()))
}

fn one(flag: &Option<String>) -> Vec<String> {
    flag.iter().cloned().collect()
}

/// Comma-separated parts of an answer.
fn parts(answer: &str) -> impl Iterator<Item = &str> {
    answer.split(',').map(str::trim)
}

/// TOML strings of a comma-separated answer.
fn list(answer: &str) -> String {
    parts(answer).map(quoted).collect::<Vec<_>>().join(", ")
}

fn pool_text(pool4: &str) -> String {
    format!(
        "\
# Public IPv4 addresses, and the ports that inside hosts may use.
[[pool]]
name = \"public\"
prefixes = [{}]
ports = \"1024-65535\"
",
        list(pool4)
    )
}

const LIMITS: &str = "\
# [limits]
# sessions_max = 262_144
";

fn nat64_text(pool6: &str, pool4: &str) -> String {
    format!(
        "{HEAD}
{}
# IPv6 hosts reach the IPv4 address a.b.c.d at the address in this prefix that embeds a.b.c.d.
[[nat64]]
name = \"nat64\"
pool6 = {}
pool = \"public\"

# Optional: connections from outside to an inside host:
# static = [{{ protocol = \"tcp\", inside = \"[2001:db8::1]:80\", outside = \"192.0.2.1:80\" }}]

{LIMITS}",
        pool_text(pool4),
        quoted(pool6)
    )
}

fn nat44_text(inside: &str, pool4: &str) -> String {
    let rules: String =
        parts(inside).map(|net| format!("#   ip rule add priority 101 from {net} lookup 4464\n")).collect();
    format!(
        "{HEAD}
{}
# Hosts in these networks share the public addresses. Policy routing sends their packets to the device, whatever the
# destination, and translated packets follow the system's routes:
#   ip rule add priority 100 iif gatun0 lookup main
{rules}#   sysctl -w net.ipv4.conf.gatun0.accept_local=1      (ICMP errors of the system; once gatun runs)
#   ip route add default dev gatun0 table 4464      (once gatun runs)
[[nat44]]
name = \"nat44\"
inside = [{}]
pool = \"public\"

# Optional: destinations without translation:
# exempt = [{{ prefixes = [\"10.0.0.0/8\"] }}]

{LIMITS}",
        pool_text(pool4),
        list(inside)
    )
}

fn siit_text(pool6: &str, mappings: &str) -> anyhow::Result<String> {
    let mut eam = String::new();
    for mapping in parts(mappings) {
        let (v4, v6) = mapping.split_once('=').with_context(|| {
            format!("\"{mapping}\" is not a mapping: expected IPv4=IPv6, as in 203.0.113.5=2001:db8::5")
        })?;
        // Writing to a String does not fail.
        let _ = writeln!(eam, "    {{ v4 = {}, v6 = {} }},", quoted(v4.trim()), quoted(v6.trim()));
    }
    Ok(format!(
        "{HEAD}
# Own addresses of the translator: it answers pings to them and sends ICMP errors from them.
[translator]
own4 = \"192.0.0.8\"   # dummy address (RFC 7600); replace it with one of yours
own6 = \"2001:db8::1\" # example; replace it with one of yours

# IPv4 hosts appear in IPv6 inside pool6; IPv6 hosts appear in IPv4 at the addresses in eam.
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
# Gatun's configuration. Check it with `gatun check`; docs/reference/configuration.md describes all keys.

# TUN device, with routes to the prefixes below.
[[port]]
device = \"gatun0\"
routes = \"auto\"
";

/// Quotes a TOML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Asks on standard error, so that `--output -` can be redirected.
fn ask(input: &mut dyn BufRead, question: &str, default: &str) -> anyhow::Result<String> {
    eprint!("{question} [{default}] ");
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        eprintln!();
        anyhow::bail!("end of input: no file was written; pass flags instead (gatun init --help)");
    }
    let line = line.trim();
    Ok(if line.is_empty() { default.to_owned() } else { line.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(mode: Option<Mode>) -> Args {
        Args {
            mode,
            pool6: None,
            pool4: Vec::new(),
            inside: Vec::new(),
            eam: Vec::new(),
            pair: None,
            output: Some("-".into()),
            force: false,
        }
    }

    #[test]
    fn generated_files_are_valid_in_every_mode() {
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

    /// Answers one after the other, as typed; then the end of input.
    fn typed(args: &Args, lines: &[u8]) -> (anyhow::Result<String>, Vec<String>) {
        let (mut input, mut asked) = (lines, Vec::new());
        let text = compose(args, &mut |question, default| {
            asked.push(question.split(' ').next().unwrap().to_owned());
            ask(&mut input, question, default)
        });
        (text, asked)
    }

    #[test]
    fn a_wrong_answer_is_asked_for_again() {
        let lines =
            b"nat46\n\nyes\n64:ff9b::/95\n2001:db8:64::/96\n192.0.2.0/33\n192.0.2.1, 198.51.100.0/30\n";
        // The empty line takes the default of the first question.
        let (text, asked) = typed(&args(None), lines);
        assert_eq!(
            asked,
            ["nat64", "nat64", "Translation", "Translation", "Translation", "Public", "Public"]
        );
        let (config, _) = gatun_config::load_str(&text.unwrap(), "gatun.toml").unwrap();
        assert_eq!(config.plan.nat64[0].pool6[0].to_string(), "2001:db8:64::/96");
        assert_eq!(config.plan.pools[0].ranges.len(), 2);
        let (text, asked) = typed(&args(None), b"SIIT\n\n203.0.113.5\n203.0.113.5=2001:db8::5\n");
        assert_eq!(asked, ["nat64", "Translation", "Mappings,", "Mappings,"]);
        assert!(text.unwrap().contains("[[siit]]"));
    }

    #[test]
    fn end_of_input_is_reported() {
        for lines in [&b""[..], b"nat46\n", b"nat64\n2001:db8:64::/96\n"] {
            let (text, _) = typed(&args(None), lines);
            let said = text.unwrap_err().to_string();
            assert!(said.contains("end of input: no file was written"), "{said}");
        }
    }

    #[test]
    fn a_wrong_flag_fails_without_a_question() {
        let mut given = args(Some(Mode::Nat64));
        given.pool6 = Some("64:ff9b::/95".to_owned());
        let (text, asked) = typed(&given, b"\n\n\n\n");
        assert!(text.unwrap_err().to_string().contains("pool6") && asked.is_empty());
    }

    #[test]
    fn answers_cannot_escape_their_quotes() {
        let mut given = args(Some(Mode::Nat64));
        given.pool6 = Some("64:ff9b::/96\"\n[limits]\nsessions_max = 1 #".to_owned());
        assert!(compose(&given, &mut |_, default| Ok(default.to_owned())).is_err());
    }
}
