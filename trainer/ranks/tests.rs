//! A rank that unit tests share.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::control::Control;
use super::*;

/// A rank and its connection to another one, which says nothing.
pub fn rank() -> (Ranks, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let control = Control::start(0, 2, vec![(1, listener.accept().unwrap().0)]).unwrap();
    let place = Place { ranks: 2, ..Place::default() };
    (Ranks { place, control: Some(control), ..Ranks::default() }, peer)
}

#[test]
fn a_peer_that_is_gone_soon_is_waited_for() {
    let (ranks, peer) = rank();
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(peer);
    });
    let cause = ranks.first_failure(Duration::from_secs(5)).unwrap().to_string();
    assert!(cause.starts_with("rank 1 of 2 failed: its connection is closed"), "{cause}");
    closing.join().unwrap();
    ranks.leave();
}
