//! Storage, and what must hold.

use crate::plan::Sort;
use crate::world::{DEADLINE, Failed, Op, Request, World};
use forebay_types::Nanos;

impl World {
    pub(crate) fn finish(&mut self, number: usize, result: Result<[u64; 4], Failed>) {
        let now = self.now;
        if self.told {
            println!("             call {number} {:?} ends: {result:?}", self.done[number].op);
        }
        let done = &mut self.done[number];
        done.ended = Some((now, result));
        let took = now.since(done.begun);
        let done = done.clone();
        if took > DEADLINE + Nanos::from_millis(600) && !done.excused {
            self.break_promise(format!("Time: call {number} took {took:?}"));
        }
        match result {
            Ok(_) => {
                self.totals.answered += 1;
                if done.applied == 0 && !done.op.is_of_locks() {
                    self.break_promise(format!("call {number} {:?} is answered and not done", done.op));
                }
            }
            Err(Failed::NoNode) if took < DEADLINE => {
                self.break_promise(format!("Time: call {number} failed after {took:?}"));
            }
            // What is removed after it moved to another host cannot be opened any more on the first.
            Err(Failed::Unsynced) if self.file > 0 => {}
            Err(failed) if self.plan.sort == Sort::Kin && !matches!(failed, Failed::Refused(_)) => {
                self.break_promise(format!("Call {number} failed with {failed:?}, and nothing has broken"));
            }
            Err(Failed::Unknown) if self.plan.sort == Sort::Gentle && matches!(done.op, Op::Write(_)) => {
                self.break_promise(format!("Time: call {number} was given up, with nodes there to do it"));
            }
            Err(Failed::Unknown) => self.totals.unknown += 1,
            Err(Failed::LockLost) => self.totals.told += 1,
            Err(Failed::Stale) => self.totals.stale += 1,
            Err(_) => {}
        }
    }

    /// A sync has ended: what those who share the open file were told before it is durable, or it is told now.
    pub(crate) fn check_durable(&mut self, number: usize, result: Result<[u64; 4], Failed>) {
        let (client, open, begun) =
            (self.done[number].client, self.done[number].open, self.done[number].begun);
        let (mut lost, mut others) = (None, false);
        for (i, d) in self.done.iter_mut().enumerate() {
            let acknowledged = matches!(d.ended, Some((at, Ok(_))) if at <= begun);
            if d.open != open || !matches!(d.op, Op::Write(_) | Op::Append) || !acknowledged {
                continue;
            }
            others |= d.client != client && !d.covered;
            d.covered |= result.is_ok();
            match result {
                Ok(_) if !d.synced && !d.told => lost = Some(i),
                Err(Failed::Unsynced | Failed::Stale) => d.told = true,
                _ => {}
            }
        }
        self.totals.synced += u64::from(result.is_ok());
        self.totals.covered += u64::from(result.is_ok() && others);
        self.totals.unsynced += u64::from(result == Err(Failed::Unsynced));
        if let Some(i) = lost {
            self.break_promise(format!(
                "Durable: sync {number} went well, and call {i} is in no host's disk"
            ));
        }
    }

    /// The client of a call says that it may be repeated: only if nobody could know better.
    pub(crate) fn note_blind(&mut self, number: usize, id: u64) {
        let done = &mut self.done[number];
        if std::mem::replace(&mut done.blind, true) {
            return;
        }
        self.totals.blind += 1;
        // With slow storage somebody on each host can always tell, if he is heard.
        let client = done.client;
        if self.plan.sort == Sort::Slow && self.lost < 2 && self.is_entered(client, id) {
            self.break_promise(format!("Order: call {number} is repeated, though a ledger says it is done"));
        }
    }

    /// Storage is changed by a call.
    pub(crate) fn apply(&mut self, request: Request, file: u64, process: usize) -> Result<[u64; 4], u32> {
        let Request { number, op, .. } = request;
        if file != request.file && matches!(op, Op::Write(_) | Op::Append) {
            self.break_promise(format!("Identity: call {number} {op:?} lands in another file"));
        }
        let host = self.processes[process].host;
        match op {
            Op::Write(register) => self.check_order(number, register),
            Op::Sync => self.done.iter_mut().filter(|d| d.on.contains(&host)).for_each(|d| d.synced = true),
            Op::Replace => self.file += 1,
            Op::Append => self.log.push(number),
            Op::Mkdir(name) => match &mut self.names[name as usize] {
                Some(_) => return Err(17),
                free => *free = Some(number),
            },
            Op::Rmdir(name) => {
                self.names[name as usize].take().ok_or(2u32)?;
            }
            Op::Lock => match self.lock {
                Some(held) if held != (process, self.done[number].client) => return Err(11),
                held => {
                    self.lock = Some((process, self.done[number].client));
                    self.lock_turns += u64::from(held.is_none());
                }
            },
            Op::Flock => match self.flock {
                Some(held) if held != (process, request.handle) => return Err(11),
                held => {
                    self.flock = Some((process, request.handle));
                    self.flock_turns += u64::from(held.is_none());
                }
            },
            Op::Funlock => self.flock = self.flock.filter(|held| *held != (process, request.handle)),
            Op::Unlock => {
                if self.lock == Some((process, self.done[number].client)) {
                    self.lock = None;
                }
            }
        }
        let done = &mut self.done[number];
        done.applied += 1;
        done.on.push(host);
        let (times, blind) = (done.applied, done.blind);
        if matches!(op, Op::Write(_)) && times > 1 && !blind {
            self.break_promise(format!(
                "Order: call {number} {op:?} was carried out twice, and it was known"
            ));
        }
        let once = !matches!(op, Op::Write(_) | Op::Sync) && !op.is_of_locks();
        if once && times > 1 {
            self.break_promise(format!("Once: call {number} {op:?} was carried out twice"));
        }
        Ok([self.log.len() as u64, 1, 0, 0])
    }

    /// A write lands: nothing newer may have been acknowledged before.
    fn check_order(&mut self, number: usize, register: u64) {
        let ended = match self.done[number].ended {
            Some((ended, Ok(_))) => ended,
            // No process had it any more when it was given up.
            Some((_, Err(Failed::NoNode))) => {
                return self.break_promise(format!("Order: call {number} lands after it failed for good"));
            }
            _ => return,
        };
        let newer = self.done.iter().position(|d| {
            d.op == Op::Write(register)
                && d.begun >= ended
                && d.applied > 0
                && matches!(d.ended, Some((_, Ok(_))))
        });
        if let Some(newer) = newer {
            self.break_promise(format!("Order: call {number} lands after call {newer}, begun after its end"));
        }
    }

    pub(crate) fn check_end(&self) -> Result<(), String> {
        for (number, d) in self.done.iter().enumerate() {
            let Some((_, result)) = d.ended else {
                if d.excused || self.now.since(d.begun) <= DEADLINE + Nanos::from_secs(1) {
                    continue;
                }
                return Err(format!("Time: call {number} {:?} never ended", d.op));
            };
            let times = d.applied;
            let right = match (d.op, result) {
                (Op::Sync, _) => true,
                (op, _) if op.is_of_locks() => true,
                (Op::Write(_), Ok(_)) => times > 0,
                (_, Ok(_)) => times == 1,
                (_, Err(Failed::Refused(_))) => times == 0,
                // A process that is gone may have done it, before none was left to do it again: not later.
                (Op::Write(_), Err(_)) => true,
                (_, Err(Failed::NoNode)) => times == 0,
                (_, Err(_)) => times <= 1,
            };
            if !right {
                return Err(format!(
                    "Once: call {number} {:?} ended with {result:?}, done {times} times",
                    d.op
                ));
            }
        }
        Ok(())
    }
}
