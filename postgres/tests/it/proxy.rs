//! A way to a server that cuts connections where it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Which connections are cut next, and after how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// None is.
    Never,
    /// On the way to the server.
    Up(usize),
    /// On the way back.
    Down(usize),
    /// Nothing is handed on, either way, and nobody is told.
    Swallow,
    /// The next answer to a statement of this text is lost, and the server's half of the connection stays.
    Hold(&'static str),
}

/// A port that leads to a server.
pub(crate) struct Proxy {
    port: u16,
    cut: Arc<Mutex<Cut>>,
    connections: Arc<(Mutex<usize>, Condvar)>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            cut: Arc::new(Mutex::new(Cut::Never)),
            connections: Arc::default(),
        };
        let (cut, connections) = (Arc::clone(&proxy.cut), Arc::clone(&proxy.connections));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                *connections.0.lock().unwrap() += 1;
                connections.1.notify_all();
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let is_held = Arc::new(AtomicBool::new(false));
                for is_up in [true, false] {
                    let (from, to) = match is_up {
                        true => (client.try_clone().unwrap(), server.try_clone().unwrap()),
                        false => (server.try_clone().unwrap(), client.try_clone().unwrap()),
                    };
                    let (cut, is_held) = (Arc::clone(&cut), Arc::clone(&is_held));
                    thread::spawn(move || hand_on(from, to, is_up, &cut, &is_held));
                }
            }
        });
        proxy
    }

    /// What becomes of the bytes from now on.
    pub(crate) fn set(&self, cut: Cut) {
        *self.cut.lock().unwrap() = cut;
    }

    /// Whether the cut has been made.
    pub(crate) fn has_cut(&self) -> bool {
        *self.cut.lock().unwrap() == Cut::Never
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        *self.connections.0.lock().unwrap()
    }

    /// Waits until `len` connections were made.
    pub(crate) fn wait_for_connections(&self, len: usize) {
        let (made, changed) = &*self.connections;
        drop(
            changed
                .wait_while(made.lock().unwrap(), |made| *made < len)
                .unwrap(),
        );
    }

    pub(crate) fn url(&self, schema: &str) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/postgres?schema={schema}",
            self.port
        )
    }
}

fn hand_on(mut from: TcpStream, mut to: TcpStream, is_up: bool, cut: &Mutex<Cut>, is_held: &AtomicBool) {
    let (mut buffer, mut is_prepared) = ([0; 8_192], false);
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if is_held.load(Ordering::Acquire) {
            continue;
        }
        let mut plan = cut.lock().unwrap();
        if let (Cut::Hold(text), true) = (*plan, is_up) {
            if is_prepared {
                // What was prepared is performed by this.
                is_held.store(true, Ordering::Release);
                *plan = Cut::Never;
            }
            is_prepared |= buffer[..len]
                .windows(text.len())
                .any(|bytes| bytes == text.as_bytes());
        }
        let left = match &mut *plan {
            Cut::Up(left) if is_up => Some(left),
            Cut::Down(left) if !is_up => Some(left),
            Cut::Swallow => continue,
            _ => None,
        };
        match left {
            Some(left) if *left < len => {
                let last = *left;
                *plan = Cut::Never;
                to.write_all(&buffer[..last]).ok();
                break;
            }
            Some(left) => *left -= len,
            None => {}
        }
        drop(plan);
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    if is_held.load(Ordering::Acquire) {
        // Neither half is told of the end of the other.
        std::mem::forget((from, to));
        return;
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}
