//! A network of its own, in which every node is on a host whose cable can be pulled. It is nobody else's, and
//! goes with this process.

use anyhow::{Context, Result, bail};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::thread::LinkNameSpaceType;
use std::net::IpAddr;
use std::process::Command;

/// What the workers and the arbiters are on: the address behind all nodes'.
const SWITCH: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 254));

/// This thread, and what it starts, is in it as long as this lives.
pub(super) struct Net {
    /// Where this thread was before.
    before: OwnedFd,
    switch: OwnedFd,
    hosts: Vec<OwnedFd>,
}

fn current() -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())?)
}

fn enter(space: &OwnedFd) -> Result<()> {
    let network = Some(LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(space), network)?;
    Ok(())
}

fn ip(line: &str) -> Result<()> {
    let out = Command::new("ip").args(line.split(' ')).output().context("ip")?;
    if !out.status.success() {
        bail!("ip {line}: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

impl Net {
    /// One with so many hosts.
    pub(super) fn new(hosts: usize) -> Result<Net> {
        if !rustix::process::geteuid().is_root() {
            bail!("a network of its own needs root");
        }
        Command::new("ip").arg("-V").output().context("ip (iproute2)")?;
        let before = current()?;
        forebay_embed::own_network()?;
        // From here on the thread goes back when this is dropped.
        let mut net = Net { before, switch: current()?, hosts: Vec::new() };
        ip("link set lo up")?;
        ip("link add br0 type bridge")?;
        ip(&format!("addr add {SWITCH}/16 dev br0"))?;
        ip("link set br0 up")?;
        for k in 0..hosts {
            forebay_embed::own_network()?;
            net.hosts.push(current()?);
            enter(&net.switch)?;
            let space = format!("/proc/{}/fd/{}", std::process::id(), net.hosts[k].as_raw_fd());
            ip(&format!("link add v{k} type veth peer name eth0 netns {space}"))?;
            ip(&format!("link set v{k} master br0 up"))?;
            net.on(k, || {
                ip("link set lo up")?;
                ip(&format!("addr add {}/16 dev eth0", net.address(k)))?;
                ip("link set eth0 up")
            })??;
        }
        Ok(net)
    }

    /// Where the workers and the arbiters are.
    pub(super) fn switch(&self) -> IpAddr {
        SWITCH
    }

    pub(super) fn address(&self, host: usize) -> IpAddr {
        IpAddr::from([10, 77, 0, host as u8 + 1])
    }

    /// What `act` starts is on that host.
    pub(super) fn on<T>(&self, host: usize, act: impl FnOnce() -> T) -> Result<T> {
        enter(&self.hosts[host])?;
        let done = act();
        enter(&self.switch)?;
        Ok(done)
    }

    /// Pulls the cable of that host, or plugs it in again.
    pub(super) fn cut(&self, host: usize, cut: bool) -> Result<()> {
        ip(&format!("link set v{host} {}", if cut { "down" } else { "up" }))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // It was possible before, and nothing else can be done about it.
        let _ = enter(&self.before);
    }
}
