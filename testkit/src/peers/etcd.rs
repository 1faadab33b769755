//! etcd, a store that several members keep, from Debian's package.

use crate::{Error, Namespace, Process, run, wait_until};
use rustix::process::Signal;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time for an election on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
/// Interval of the leader's signs of life, and time without them until an election, ms.
const TIMES_MS: [u32; 2] = [100, 1_000];

/// Place of a member.
pub struct EtcdPlace<'n> {
    /// Host on which it runs. `None`: the host of the caller.
    pub host: Option<&'n Namespace>,
    /// Address and port for clients.
    pub client: SocketAddr,
    /// Address and port for other members.
    pub peer: SocketAddr,
}

/// Files for TLS, PEM. Members demand a certificate of the authority from their clients.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// Authority.
    pub authority: PathBuf,
    /// Certificate of members and of etcdctl.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Members of a cluster of etcd. They end with this value.
pub struct EtcdMembers<'n> {
    places: Vec<EtcdPlace<'n>>,
    members: Vec<Option<Process>>,
    directory: PathBuf,
    options: Vec<String>,
    tls: Option<EtcdTls>,
    /// Options of etcdctl.
    control: Vec<String>,
}

impl<'n> EtcdMembers<'n> {
    /// Starts a member at each place, with its data in `directory`, and waits until they answer.
    ///
    /// # Errors
    /// Returns an error if etcd is not installed, or the members do not elect a leader in time.
    pub fn start(places: Vec<EtcdPlace<'n>>, directory: &Path) -> Result<EtcdMembers<'n>, Error> {
        EtcdMembers::start_with(places, directory, &[])
    }

    /// Starts members with further options.
    ///
    /// # Errors
    /// As for [`EtcdMembers::start`].
    pub fn start_with(
        places: Vec<EtcdPlace<'n>>,
        directory: &Path,
        options: &[&str],
    ) -> Result<EtcdMembers<'n>, Error> {
        EtcdMembers::begin(places, directory, (options, None))
    }

    /// Starts members that speak TLS with their clients.
    ///
    /// # Errors
    /// As for [`EtcdMembers::start`].
    pub fn start_secure(
        places: Vec<EtcdPlace<'n>>,
        directory: &Path,
        tls: EtcdTls,
    ) -> Result<EtcdMembers<'n>, Error> {
        EtcdMembers::begin(places, directory, (&[], Some(tls)))
    }

    fn begin(
        places: Vec<EtcdPlace<'n>>,
        directory: &Path,
        (options, tls): (&[&str], Option<EtcdTls>),
    ) -> Result<EtcdMembers<'n>, Error> {
        let members = places.iter().map(|_| None).collect();
        let mut options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let mut control = Vec::new();
        if let Some(EtcdTls { authority, certificate, key }) = &tls {
            let [authority, certificate, key] = [authority, certificate, key].map(|path| path.display());
            options.push("--client-cert-auth".to_owned());
            options.push(format!("--trusted-ca-file={authority}"));
            options.extend([format!("--cert-file={certificate}"), format!("--key-file={key}")]);
            control = vec![
                format!("--cacert={authority}"),
                format!("--cert={certificate}"),
                format!("--key={key}"),
            ];
        }
        let directory = directory.to_owned();
        let mut cluster = EtcdMembers { places, members, directory, options, tls, control };
        for number in 0..cluster.places.len() {
            cluster.start_member(number)?;
        }
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// Starts a member, also one that has ended, with its data.
    ///
    /// # Errors
    /// Returns an error if etcd is not installed, or the directory cannot be written.
    pub fn start_member(&mut self, number: usize) -> Result<(), Error> {
        let wrong = |error: std::io::Error| Error(format!("etcd: {error}"));
        let data = self.directory.join(format!("etcd-{number}"));
        fs::create_dir_all(&self.directory).map_err(wrong)?;
        let log = fs::File::options().create(true).append(true).open(data.with_extension("log"));
        let EtcdPlace { client, peer, .. } = &self.places[number];
        let member = |(n, place): (usize, &EtcdPlace<'_>)| format!("etcd-{n}=http://{}", place.peer);
        let members: Vec<String> = self.places.iter().enumerate().map(member).collect();
        let [beat, election] = TIMES_MS.map(|ms| ms.to_string());
        let mut command = self.command(number, "etcd");
        command.arg("--name").arg(format!("etcd-{number}")).arg("--data-dir").arg(&data);
        command.args(["--listen-client-urls", &self.url(*client)]);
        command.args(["--advertise-client-urls", &self.url(*client)]);
        command.args(["--listen-peer-urls", &format!("http://{peer}")]);
        command.args(["--initial-advertise-peer-urls", &format!("http://{peer}")]);
        command.args(["--initial-cluster", &members.join(","), "--initial-cluster-state", "new"]);
        command.args(["--heartbeat-interval", &beat, "--election-timeout", &election]);
        command.args(["--logger", "zap", "--log-outputs", "stderr"]).args(&self.options);
        let started = Process::start(command.stdout(Stdio::null()).stderr(log.map_err(wrong)?))?;
        self.members[number] = Some(started);
        Ok(())
    }

    /// Kills a member.
    ///
    /// # Errors
    /// Returns an error if it does not run.
    pub fn kill(&mut self, number: usize) -> Result<(), Error> {
        let member = self.members[number].take();
        let mut member = member.ok_or_else(|| Error(format!("etcd-{number} does not run")))?;
        member.signal(Signal::KILL)?;
        member.wait(READY_MAX).map(drop)
    }

    /// Stops a member, or lets it go on: it keeps its connections and does not answer meanwhile.
    ///
    /// # Errors
    /// Returns an error if it does not run.
    pub fn stop(&self, number: usize, is_stopped: bool) -> Result<(), Error> {
        let member = self.members[number].as_ref();
        let member = member.ok_or_else(|| Error(format!("etcd-{number} does not run")))?;
        member.signal(if is_stopped { Signal::STOP } else { Signal::CONT })
    }

    /// Waits until all members answer after an election.
    ///
    /// # Errors
    /// Returns an error if one does not within a minute.
    pub fn wait_ready(&self) -> Result<(), Error> {
        for number in 0..self.places.len() {
            let health = ["--command-timeout", "3s", "--dial-timeout", "1s", "endpoint", "health"];
            let is_ready = || self.control(number, &health).is_ok();
            wait_until(&format!("etcd-{number} answers"), READY_MAX, is_ready)?;
        }
        Ok(())
    }

    /// URLs of the members, for clients.
    pub fn endpoints(&self) -> Vec<String> {
        self.places.iter().map(|place| self.url(place.client)).collect()
    }

    fn url(&self, client: SocketAddr) -> String {
        format!("{}://{client}", if self.tls.is_some() { "https" } else { "http" })
    }

    /// Has members demand a user and a password. `root` has this one, and etcdctl uses it.
    ///
    /// # Errors
    /// Returns an error if etcd refuses it.
    pub fn demand_password(&mut self, password: &str) -> Result<(), Error> {
        let root = format!("root:{password}");
        self.control(0, &["user", "add", &root])?;
        self.control(0, &["user", "grant-role", "root", "root"])?;
        self.control(0, &["auth", "enable"])?;
        self.control.push(format!("--user={root}"));
        Ok(())
    }

    /// Runs etcdctl on the host of a member, for that member. Returns its output.
    ///
    /// # Errors
    /// Returns an error if etcdctl is not installed or fails.
    pub fn control(&self, number: usize, arguments: &[&str]) -> Result<String, Error> {
        let mut command = self.command(number, "etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(&self.endpoints()[number]);
        command.args(&self.control);
        // On a busy machine, a password's hash and a write to a disk take seconds.
        run(command.args(["--command-timeout", "30s", "--dial-timeout", "10s"]).args(arguments))
    }

    fn command(&self, number: usize, program: &str) -> Command {
        self.places[number].host.map_or_else(|| Command::new(program), |host| host.command(program))
    }
}
