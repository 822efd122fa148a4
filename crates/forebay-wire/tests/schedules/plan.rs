//! A schedule: how many of everything, and what goes wrong when.

use crate::world::LEASE;
use forebay_types::Nanos;

/// Random numbers that follow from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Mostly short, sometimes long: up to `longest`.
    pub(crate) fn skewed(&mut self, longest: Nanos) -> Nanos {
        let range = longest.0 >> self.below(20);
        Nanos(self.below(range + 1))
    }
}

/// What goes wrong, or is done on purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Kill(usize),
    /// The process of that node ends if there is one, and another is started.
    Restart(usize),
    /// The same, at another address, of which the arbiter hears a little later.
    Elsewhere(usize),
    Drain(usize),
    /// All processes of that host end, and others are started, which know nothing of them.
    Reboot(usize),
    Freeze(usize, Nanos),
    /// Every connection between them is reset.
    Reset(usize, usize),
    /// Nothing gets through between them.
    Cut(usize, usize, Nanos),
    StopClient(usize, Nanos),
    /// The arbiter maps the job to the nodes whose bits are set.
    Remap(u64),
    /// The client forks, as soon as it is between two calls.
    Fork(usize),
    /// The client ends, as soon as it is between two calls.
    Exit(usize),
    /// The client is killed, whatever it is doing.
    Die(usize),
}

/// What kind of schedule it is: what may happen, and what is promised then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Anything but slow storage.
    Rough,
    /// Storage that takes longer than the fence, on a node nobody can vouch for: that remains, and is written
    /// down. Here somebody can: the first node of each host stays as it is.
    Slow,
    /// Nothing that lasts: what can be done again is.
    Gentle,
    /// No node and no connection breaks; processes fork and end, the job is moved. Nobody notices anything.
    Kin,
}

/// One schedule.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    pub(crate) nodes: usize,
    pub(crate) hosts: usize,
    pub(crate) longest_call: Nanos,
    pub(crate) sort: Sort,
    pub(crate) faults: Vec<(Nanos, Fault)>,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Plan {
        let mut r = Random(seed);
        let (clients, hosts) = (1 + r.below(3) as usize, 1 + r.below(2) as usize);
        let sort = match r.below(16) {
            0..7 => Sort::Slow,
            7..9 => Sort::Gentle,
            9..11 => Sort::Kin,
            _ => Sort::Rough,
        };
        let slow = sort == Sort::Slow;
        let nodes = if slow { 2 * hosts } else { 2 + r.below(3) as usize };
        let span = if r.one_in(2) { Nanos::from_secs(40) } else { Nanos::from_secs(8) };
        let at = |r: &mut Random| Nanos(r.below(span.0));
        let mut faults: Vec<(Nanos, Fault)> = (0..r.below(7))
            .map(|_| {
                let when = at(&mut r);
                let node = if slow {
                    hosts + r.below(hosts as u64) as usize
                } else {
                    r.below(nodes as u64) as usize
                };
                let (client, long) = (r.below(clients as u64) as usize, r.skewed(Nanos::from_secs(20)));
                let fault = match sort {
                    Sort::Kin => r.below(3),
                    Sort::Gentle => [0, 1, 3, 6, 8][r.below(5) as usize],
                    Sort::Slow => r.below(8),
                    Sort::Rough => r.below(13),
                };
                let fault = match fault {
                    0 => Fault::Fork(client),
                    1 => Fault::Remap(r.next()),
                    2 => Fault::Exit(client),
                    3 => Fault::Reset(client, node),
                    4 => Fault::Kill(node),
                    5 => Fault::Elsewhere(node),
                    6 => Fault::Restart(node),
                    7 => Fault::Drain(node),
                    8 => Fault::Reboot(node % hosts),
                    9 => Fault::Freeze(node, long),
                    10 => Fault::Cut(client, node, long),
                    11 => Fault::Die(client),
                    _ => Fault::StopClient(client, long),
                };
                (when, fault)
            })
            .collect();
        // What is known together needs somebody to know it with.
        if r.one_in(4) {
            let client = r.below(clients as u64) as usize;
            faults.push((Nanos(r.below(span.0 / 8)), Fault::Fork(client)));
        }
        // What fences are for: a node stands still for about as long as its lease lasts, and whoever waits
        // for it may lose the connection.
        if sort == Sort::Rough && r.one_in(2) {
            for _ in 0..1 + r.below(3) {
                let (when, node) = (at(&mut r), r.below(nodes as u64) as usize);
                let long = Nanos::from_millis(100) + Nanos(r.below(LEASE.0 * 2));
                faults.push((when, Fault::Freeze(node, long)));
                if r.one_in(2) {
                    let later = Nanos(r.below(long.0));
                    faults.push((when + later, Fault::Reset(r.below(clients as u64) as usize, node)));
                }
            }
        }
        let longest_call = if slow { Nanos::from_secs(60) } else { Nanos::from_millis(400) };
        Plan { seed, clients, nodes, hosts, longest_call, sort, faults }
    }
}
