//! The sandbox that all hosts of the lab run in.

use super::process;
use crate::Error;
use crate::requirement::{INSIDE, current_test, skip};
use std::ffi::OsString;
use std::process::{Command, ExitStatus, Stdio};

/// Runs this same program with `args` in a sandbox and waits for its end. Returns `None` if the process
/// already is in the sandbox.
///
/// # Errors
/// Like [`refusal`], or if the sandbox's mounts or loopback device cannot be set up.
pub fn enter(name: &str, args: &[OsString]) -> Result<Option<ExitStatus>, Error> {
    if std::env::var_os(INSIDE).is_some() {
        furnish()?;
        return Ok(None);
    }
    if let Some(why) = refusal() {
        return Err(Error(why));
    }
    let program = std::env::current_exe().map_err(|e| Error(format!("path of this program: {e}")))?;
    let mut command = unshare();
    command.arg(program).args(args).env(INSIDE, name);
    let status = command.status().map_err(|e| Error(format!("unshare: {e}")))?;
    Ok(Some(status))
}

/// Runs the body of a test in a sandbox: the test, whose full name is `test`, runs itself again inside. If
/// `refusal` returns a reason, the test lacks something: see [`skip`].
///
/// # Panics
/// Panics if the test has another name, fails inside or lacks something, or if the sandbox cannot be set up.
pub fn run_test(test: &str, refusal: impl FnOnce() -> Option<String>, body: fn()) {
    if std::env::var_os(INSIDE).is_none() {
        let called = current_test();
        // With another name the inner run would match no test, and pass. libtest with one thread runs tests
        // in the thread `main`.
        assert!(called == test || called == "main", "{called} runs itself as {test}");
        if let Some(why) = refusal() {
            return skip(&why);
        }
    }
    let args = ["--exact", test, "--nocapture", "--test-threads=1"].map(Into::into);
    match enter(test, &args).expect("a sandbox") {
        Some(status) => assert!(status.success(), "{test} failed inside its sandbox: see above"),
        None => body(),
    }
}

/// Like [`refusal`], for a test that does `what` and so needs root outside any user namespace.
pub fn refusal_but_to_root(what: &str) -> Option<String> {
    let needs_root = || format!("{what} needs root outside any user namespace");
    refusal().or_else(|| (!rustix::process::geteuid().is_root()).then(needs_root))
}

/// Reason why no sandbox can be made here, or `None` if one can.
pub fn refusal() -> Option<String> {
    for program in ["unshare", "setpriv", "ip", "nsenter", "mount"] {
        if !crate::has_program(program) {
            return Some(format!("the program `{program}` is missing (Debian: util-linux, iproute2)"));
        }
    }
    if let Err(e) = std::fs::File::options().read(true).write(true).open("/dev/net/tun") {
        return Some(format!(
            "/dev/net/tun cannot be opened: {e} (modprobe tun, --device /dev/net/tun, or run it as root)"
        ));
    }
    let probe = unshare().arg("true").stderr(Stdio::piped()).output();
    match probe {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "this kernel or container allows no namespaces: {}; run it as root",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(e) => Some(format!("unshare: {e}")),
    }
}

/// The command that makes the sandbox. The end of the caller, even by SIGKILL, ends `unshare`; that ends the
/// sandbox's first process, which ends all others.
fn unshare() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
}

/// Mounts a /run for the names of further namespaces, invisible outside, and sets the loopback device up.
fn furnish() -> Result<(), Error> {
    process::run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]))?;
    process::run(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "runs itself as")]
    fn a_test_that_names_another_one_fails() {
        run_test("hosts::sandbox::tests::no_such_test", || None, || {});
    }
}
