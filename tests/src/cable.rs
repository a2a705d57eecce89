//! A cable between two programs that can be cut, held, and mended: a TCP proxy that knows nothing of what it carries.

use anyhow::Result;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What a cable does with what comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Flow {
    /// Everything passes.
    #[default]
    Whole,
    /// No connection is there, and none comes to be.
    Cut,
    /// Connections stand, and nothing passes either way until it is mended.
    Held,
    /// What is asked passes; the answers don't until it is mended.
    Deaf,
}

#[derive(Default)]
struct State {
    flow: Flow,
    /// Connections of an earlier one are over.
    generation: u64,
    open: Vec<TcpStream>,
    over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, flow: Flow) {
        let mut state = self.lock();
        state.flow = flow;
        if flow == Flow::Cut {
            cut(&mut state);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until bytes of a connection may pass; `false`: it is over.
    fn may_pass(&self, generation: u64, asked: bool) -> bool {
        let mut state = self.lock();
        loop {
            if state.generation != generation || state.over {
                return false;
            }
            match state.flow {
                Flow::Whole => return true,
                Flow::Deaf if asked => return true,
                Flow::Cut => return false,
                Flow::Held | Flow::Deaf => {}
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn cut(state: &mut State) {
    state.generation += 1;
    for stream in state.open.drain(..) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// See the module. It ends when it is dropped.
pub struct Cable {
    /// Its near end.
    pub addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Cable {
    /// Lays one to an address, which need not answer yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn to(far: SocketAddr) -> Result<Cable> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let (over, flow) = {
                    let state = theirs.lock();
                    (state.over, state.flow)
                };
                if over {
                    return;
                }
                if flow != Flow::Cut {
                    let shared = theirs.clone();
                    thread::spawn(move || connect(near, far, &shared));
                }
            }
        });
        Ok(Cable { addr, shared })
    }

    /// Cuts it: every connection ends, and none comes to be.
    pub fn cut(&self) {
        self.shared.set(Flow::Cut);
    }

    /// Nothing passes any more, and nobody is told.
    pub fn hold(&self) {
        self.shared.set(Flow::Held);
    }

    /// What is asked passes, and no answer comes back.
    pub fn deafen(&self) {
        self.shared.set(Flow::Deaf);
    }

    /// Mends it: what was held passes now.
    pub fn mend(&self) {
        self.shared.set(Flow::Whole);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.over = true;
        cut(&mut state);
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the one that accepts.
        let _ = TcpStream::connect_timeout(&self.addr, Duration::from_secs(1));
    }
}

fn connect(near: TcpStream, far: SocketAddr, shared: &Arc<Shared>) {
    let Ok(far) = TcpStream::connect(far) else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { return };
    let generation = {
        let mut state = shared.lock();
        if state.over || state.flow == Flow::Cut {
            return;
        }
        state.open.retain(|s| s.peer_addr().is_ok());
        state.open.extend([near.try_clone(), far.try_clone()].into_iter().flatten());
        state.generation
    };
    let answers = shared.clone();
    thread::spawn(move || carry(far_too, near_too, &answers, generation, false));
    carry(near, far, shared, generation, true);
}

fn carry(mut from: TcpStream, mut to: TcpStream, shared: &Shared, generation: u64, asked: bool) {
    let mut some = vec![0; 32 << 10];
    while let Ok(n) = from.read(&mut some) {
        if n == 0 || !shared.may_pass(generation, asked) || to.write_all(&some[..n]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn say(stream: &mut TcpStream, word: &[u8; 4]) -> Option<[u8; 4]> {
        stream.write_all(word).ok()?;
        let mut heard = [0; 4];
        stream.read_exact(&mut heard).ok().map(|()| heard)
    }

    #[test]
    fn a_cable_is_cut_held_deaf_and_mended() {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = echo.local_addr().unwrap();
        let (sender, heard) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for mut stream in echo.incoming().map_while(Result::ok) {
                let sender = sender.clone();
                thread::spawn(move || {
                    let mut word = [0; 4];
                    while stream.read_exact(&mut word).is_ok() {
                        let _ = sender.send(word);
                        let _ = stream.write_all(&word);
                    }
                });
            }
        });
        let cable = Cable::to(far).unwrap();
        let open = || {
            let stream = TcpStream::connect(cable.addr).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            stream
        };
        let mut one = open();
        assert_eq!(say(&mut one, b"told"), Some(*b"told"));
        heard.recv().unwrap();
        cable.deafen();
        assert_eq!(say(&mut one, b"deaf"), None);
        assert_eq!(heard.recv_timeout(Duration::from_secs(2)).unwrap(), *b"deaf");
        cable.hold();
        assert_eq!(say(&mut one, b"held"), None);
        assert!(heard.recv_timeout(Duration::from_millis(100)).is_err());
        cable.mend();
        assert_eq!(heard.recv_timeout(Duration::from_secs(2)).unwrap(), *b"held");
        let mut late = [0; 8];
        one.read_exact(&mut late).unwrap();
        assert_eq!(&late, b"deafheld");
        cable.cut();
        assert_eq!(say(&mut one, b"gone"), None);
        let mut other = open();
        assert_eq!(say(&mut other, b"none"), None);
        cable.mend();
        assert_eq!(say(&mut open(), b"back"), Some(*b"back"));
    }
}
