//! Proxy of TCP connections that delays, swallows or refuses what passes it.

use crate::{Error, Namespace};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Treatment of the bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyMode {
    /// Carries them.
    #[default]
    Pass,
    /// Carries each part after this time, in each direction.
    Delay(Duration),
    /// Accepts connections and carries nothing.
    Silent,
    /// Closes connections.
    Refuse,
}

#[derive(Debug)]
struct State {
    mode: ProxyMode,
    target: SocketAddr,
    /// Both ends of the present connections.
    connections: Vec<TcpStream>,
    is_over: bool,
}

/// Proxy. It ends with this value.
#[derive(Debug)]
pub struct Proxy {
    state: Arc<Mutex<State>>,
    listen: SocketAddr,
}

/// Interval at which a silent proxy looks for another mode.
const LOOK: Duration = Duration::from_millis(20);

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Starts a proxy on a host, or on that of the caller.
    ///
    /// # Errors
    /// Returns an error if the host or the address cannot be used.
    pub fn start(host: Option<&Namespace>, listen: SocketAddr, target: SocketAddr) -> Result<Proxy, Error> {
        let state = State { mode: ProxyMode::Pass, target, connections: Vec::new(), is_over: false };
        let state = Arc::new(Mutex::new(state));
        let (of_thread, name) = (Arc::clone(&state), host.map(|host| host.name().to_owned()));
        // The sockets that a thread opens, and the threads that it starts, are in its namespace.
        let body = move || -> io::Result<(TcpListener, Arc<Mutex<State>>)> {
            if let Some(name) = name {
                let namespace = File::open(format!("/run/netns/{name}"))?;
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            }
            Ok((TcpListener::bind(listen)?, of_thread))
        };
        let (started, starts) = std::sync::mpsc::sync_channel(1);
        thread::spawn(move || match body() {
            Ok((listener, state)) => {
                let _ = started.send(listener.local_addr());
                serve(&listener, &state);
            }
            Err(error) => drop(started.send(Err(error))),
        });
        let wrong = |why: String| Error(format!("proxy at {listen}: {why}"));
        let bound = starts.recv().map_err(|error| wrong(error.to_string()))?;
        Ok(Proxy { state, listen: bound.map_err(|error| wrong(error.to_string()))? })
    }

    /// Address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Changes what it does, also with the present connections.
    pub fn set(&self, mode: ProxyMode) {
        let mut state = lock(&self.state);
        state.mode = mode;
        if mode == ProxyMode::Refuse {
            close(&mut state);
        }
    }

    /// Closes all connections. The next ones lead to another server.
    pub fn lead_to(&self, target: SocketAddr) {
        let mut state = lock(&self.state);
        state.target = target;
        close(&mut state);
    }
}

impl Drop for Proxy {
    /// The thread that accepts connections ends with the next one, or with the process.
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        close(&mut state);
    }
}

fn close(state: &mut State) {
    for connection in state.connections.drain(..) {
        let _ = connection.shutdown(Shutdown::Both);
    }
}

fn serve(listener: &TcpListener, state: &Arc<Mutex<State>>) {
    for client in listener.incoming().flatten() {
        let State { mode, target, is_over, .. } = *lock(state);
        if is_over {
            return;
        }
        if mode == ProxyMode::Refuse {
            continue;
        }
        let Ok(server) = TcpStream::connect_timeout(&target, Duration::from_secs(1)) else { continue };
        let mut now = lock(state);
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (Ok(from), Ok(to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone()) else {
                break;
            };
            now.connections.push(kept);
            let state = Arc::clone(state);
            thread::spawn(move || carry(from, to, &state));
        }
    }
}

/// Carries one direction until an end closes it.
fn carry(mut from: TcpStream, mut to: TcpStream, state: &Mutex<State>) {
    let mut part = vec![0; 64 * 1024];
    while let Ok(len @ 1..) = from.read(&mut part) {
        loop {
            let State { mode, is_over, .. } = *lock(state);
            match mode {
                _ if is_over => return,
                ProxyMode::Silent => thread::sleep(LOOK),
                ProxyMode::Delay(time) => break thread::sleep(time),
                ProxyMode::Pass | ProxyMode::Refuse => break,
            }
        }
        if to.write_all(&part[..len]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait_until;
    use std::time::Instant;

    const SOON: Duration = Duration::from_secs(10);

    /// Server that answers each byte with one of its own.
    fn server(answer: u8) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut byte = [0];
                    while client.read_exact(&mut byte).is_ok() && client.write_all(&[answer]).is_ok() {}
                });
            }
        });
        address
    }

    fn ask(client: &mut TcpStream) -> io::Result<u8> {
        let mut byte = [0];
        client.write_all(&byte)?;
        client.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    #[test]
    fn it_delays_swallows_and_refuses_and_leads_to_another_server() {
        let proxy = Proxy::start(None, "127.0.0.1:0".parse().unwrap(), server(1)).unwrap();
        let connect = || TcpStream::connect(proxy.address()).unwrap();
        let mut client = connect();
        assert_eq!(ask(&mut client).unwrap(), 1);
        proxy.set(ProxyMode::Delay(Duration::from_millis(60)));
        let begun = Instant::now();
        assert_eq!(ask(&mut client).unwrap(), 1);
        assert!(begun.elapsed() >= Duration::from_millis(120), "{:?}", begun.elapsed());
        proxy.set(ProxyMode::Silent);
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(ask(&mut client).is_err());
        proxy.set(ProxyMode::Refuse);
        client.set_read_timeout(Some(SOON)).unwrap();
        assert!(ask(&mut client).is_err());
        assert!(ask(&mut connect()).is_err());
        proxy.set(ProxyMode::Pass);
        let mut client = connect();
        assert_eq!(ask(&mut client).unwrap(), 1);
        proxy.lead_to(server(2));
        assert!(ask(&mut client).is_err());
        wait_until("the other server answers", SOON, || ask(&mut connect()).is_ok_and(|by| by == 2)).unwrap();
    }
}
