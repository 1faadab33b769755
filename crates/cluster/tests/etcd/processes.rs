//! Members of etcd on loopback.

use gatun_testkit::{EtcdMembers, EtcdPlace};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Members of etcd, which end with it.
pub struct Etcd {
    members: EtcdMembers<'static>,
    count: usize,
    directory: PathBuf,
}

fn free_addresses() -> [SocketAddr; 2] {
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap())
}

impl Etcd {
    /// Starts some members and waits until they have a leader.
    pub fn start(count: usize) -> Etcd {
        Etcd::start_with(count, |_| vec![])
    }

    /// Starts a member whose tokens have the revision of the users, and which refuses older ones.
    pub fn with_signed_tokens() -> Etcd {
        Etcd::start_with(1, |directory| {
            let key = directory.join("key");
            fs::create_dir_all(directory).unwrap();
            fs::write(&key, "key of a test, which signs tokens").unwrap();
            let token = format!("jwt,sign-method=HS256,ttl=5m,priv-key={}", key.display());
            vec!["--auth-token".to_owned(), token]
        })
    }

    fn start_with(count: usize, options: impl Fn(&Path) -> Vec<String>) -> Etcd {
        let place = |[client, peer]: [SocketAddr; 2]| EtcdPlace { host: None, client, peer };
        let places: Vec<_> = (0..count).map(|_| place(free_addresses())).collect();
        let name = format!("gatun-etcd-{}-{}", std::process::id(), places[0].client.port());
        let directory = std::env::temp_dir().join(name);
        let options = options(&directory);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let members = EtcdMembers::start_with(places, &directory, &options).unwrap();
        Etcd { members, count, directory }
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.members.endpoints()
    }

    /// Number of the member that leads.
    pub fn leader(&self) -> usize {
        let is_leader = |member: &usize| {
            let text = self.members.control(*member, &["endpoint", "status"]).unwrap();
            text.split(", ").nth(4) == Some("true")
        };
        (0..self.count).find(is_leader).expect("no leader")
    }

    pub fn demand_password(&self, user: &str, password: &str) {
        self.control(&["user", "add", &format!("{user}:{password}")]);
        self.control(&["user", "grant-role", user, "root"]);
        self.control(&["auth", "enable"]);
    }

    /// Runs etcdctl.
    pub fn control(&self, arguments: &[&str]) {
        self.members.control(0, arguments).unwrap();
    }

    pub fn kill(&mut self, member: usize) {
        self.members.kill(member).unwrap();
    }

    pub fn pause(&self, member: usize) {
        self.members.stop(member, true).unwrap();
    }

    pub fn go_on(&self, member: usize) {
        self.members.stop(member, false).unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.directory));
    }
}
