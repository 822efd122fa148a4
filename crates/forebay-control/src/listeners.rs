//! Who listens on this machine.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};

/// The kernel's question for connections (`SOCK_DIAG_BY_FAMILY`), its flags (a request for all), and the ends of an answer.
const BY_FAMILY: u16 = 20;
const ALL: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// TCP, and of its states the one of who listens.
const TCP: u8 = 6;
const LISTENS: u32 = 1 << 10;
/// A message's head, and a connection in an answer.
const HEAD: usize = 16;
const CONNECTION: usize = 72;

/// Every address of this machine at which somebody listens by TCP, and as whom. Not every kernel answers; its tables below
/// `/proc/net` say it too, but take it milliseconds.
///
/// # Errors
/// If the kernel does not tell.
pub(crate) fn listeners() -> Result<Vec<(SocketAddr, u32)>> {
    asked().or_else(|_| read())
}

/// What the kernel's tables say. One without the newer protocol has no second.
fn read() -> Result<Vec<(SocketAddr, u32)>> {
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let newer = std::fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    Ok(table.lines().chain(newer.lines()).filter_map(listener).collect())
}

/// Where somebody listens, and who, by a line of such a table.
fn listener(line: &str) -> Option<(SocketAddr, u32)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = words.get(1)?.split_once(':')?;
    if *words.get(3)? != "0A" {
        return None;
    }
    // Words of four bytes, each as this machine has it in memory.
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::from(word(0)?),
        _ => {
            let all = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            IpAddr::from(<[u8; 16]>::try_from(all).ok()?).to_canonical()
        }
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((SocketAddr::new(ip, port), words.get(7)?.parse().ok()?))
}

/// What the kernel answers.
fn asked() -> Result<Vec<(SocketAddr, u32)>> {
    let mut all = Vec::new();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        let kernel = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::SOCK_DIAG))?;
        rustix::net::sockopt::set_socket_timeout(
            &kernel,
            rustix::net::sockopt::Timeout::Recv,
            Some(std::time::Duration::from_secs(1)),
        )?;
        send(&kernel, &question(family.as_raw() as u8), SendFlags::empty())?;
        let mut buffer = vec![0; 64 << 10];
        while {
            let (n, _) = recv(&kernel, &mut buffer[..], RecvFlags::empty())?;
            taken(&buffer[..n], &mut all)?
        } {}
    }
    Ok(all)
}

fn question(family: u8) -> Vec<u8> {
    let mut ask = Vec::with_capacity(HEAD + 56);
    ask.extend(72u32.to_ne_bytes());
    ask.extend([BY_FAMILY, ALL].map(u16::to_ne_bytes).as_flattened());
    ask.extend([0; 8]);
    ask.extend([family, TCP, 0, 0]);
    ask.extend(LISTENS.to_ne_bytes());
    ask.extend([0; 48]);
    ask
}

/// Takes in a part of an answer; whether there is more to come.
fn taken(mut part: &[u8], all: &mut Vec<(SocketAddr, u32)>) -> Result<bool> {
    let nonsense = || Error::from(ErrorKind::InvalidData);
    while !part.is_empty() {
        let number = |at: usize| Some(u32::from_ne_bytes(part.get(at..at + 4)?.try_into().ok()?));
        let length = number(0).ok_or_else(nonsense)? as usize;
        let kind = number(4).ok_or_else(nonsense)?.to_ne_bytes();
        match u16::from_ne_bytes([kind[0], kind[1]]) {
            DONE => return Ok(false),
            ERROR => return Err(Error::other("the kernel does not tell who listens")),
            _ => {}
        }
        let message = part.get(HEAD..length).filter(|m| m.len() >= CONNECTION).ok_or_else(nonsense)?;
        let port = u16::from_be_bytes([message[4], message[5]]);
        let bytes: [u8; 16] = message[8..24].try_into().map_err(|_| nonsense())?;
        let ip = match i32::from(message[0]) == i32::from(AddressFamily::INET.as_raw()) {
            true => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            false => IpAddr::from(bytes).to_canonical(),
        };
        let uid = number(HEAD + 64).ok_or_else(nonsense)?;
        all.push((SocketAddr::new(ip, port), uid));
        part = part.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn whoever_listens_is_found() {
        for at in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            // Not every machine has the newer protocol.
            let Ok(here) = TcpListener::bind(at) else { continue };
            let own = (here.local_addr().unwrap(), rustix::process::geteuid().as_raw());
            for found in [listeners(), read()] {
                let found = found.expect("the kernel tells");
                assert!(found.contains(&own), "{own:?}: {found:?}");
            }
        }
        let mut none = Vec::new();
        for cut in [&[1u8][..], &[0; 16], &[255; 20], &[16, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(taken(cut, &mut none).is_err(), "{cut:?}");
        }
        assert!(none.is_empty());
    }
}
