//! Counters of this router, as serverStatus shows them.
//!
//! Each thread counts in a slot of its own, so that counting is an add to a cache line that no other core writes;
//! reading sums the slots.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::asked::Asked;
use crate::command::{Command, table};
use crate::reply::Reply;

/// Slots; threads beyond share them. A power of two.
const SLOTS: usize = 32;

/// One thread's counters, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    insert: AtomicU64,
    query: AtomicU64,
    update: AtomicU64,
    delete: AtomicU64,
    getmore: AtomicU64,
    command: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    requests: AtomicU64,
    failed: AtomicU64,
    started: AtomicU64,
    ended: AtomicU64,
    unknown: AtomicU64,
    /// By the number of the row.
    commands: Box<[OfCommand]>,
    /// By [`TARGETED`], then by [`REACH`].
    targeted: [[AtomicU64; REACH.len()]; TARGETED.len()],
}

/// What became of one command's calls.
#[derive(Debug, Default)]
struct OfCommand {
    total: AtomicU64,
    failed: AtomicU64,
}

/// Commands of which serverStatus tells how many shards they reached, as mongos names them.
pub const TARGETED: [&str; 5] = ["find", "insert", "update", "delete", "aggregate"];

/// How far a command reached.
pub const REACH: [&str; 4] = ["allShards", "manyShards", "oneShard", "unsharded"];

/// Counters; one a router.
#[derive(Debug)]
pub struct Stats {
    slots: Box<[Slot]>,
    connections: AtomicU64,
    connections_created: AtomicU64,
    connections_rejected: AtomicU64,
    max_connections: AtomicU64,
    awaiting_hello: AtomicU64,
}

/// The sums at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Documents inserted.
    pub insert: u64,
    /// find commands.
    pub query: u64,
    /// Update statements.
    pub update: u64,
    /// Delete statements.
    pub delete: u64,
    /// getMore commands.
    pub getmore: u64,
    /// All other commands.
    pub command: u64,
    /// Bytes of requests.
    pub bytes_in: u64,
    /// Bytes of replies.
    pub bytes_out: u64,
    /// Messages of clients.
    pub requests: u64,
    /// Commands that ended in an error.
    pub failed: u64,
    /// Commands that run.
    pub active: u64,
    /// Open client connections.
    pub connections: u64,
    /// Client connections ever opened.
    pub connections_created: u64,
    /// Client connections turned away.
    pub connections_rejected: u64,
    /// The most client connections at a time.
    pub max_connections: u64,
}

impl Default for Slot {
    fn default() -> Self {
        let counter = AtomicU64::default;
        Self {
            insert: counter(),
            query: counter(),
            update: counter(),
            delete: counter(),
            getmore: counter(),
            command: counter(),
            bytes_in: counter(),
            bytes_out: counter(),
            requests: counter(),
            failed: counter(),
            started: counter(),
            ended: counter(),
            unknown: counter(),
            commands: table::rows().map(|_| OfCommand::default()).collect(),
            targeted: Default::default(),
        }
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            connections: AtomicU64::new(0),
            connections_created: AtomicU64::new(0),
            connections_rejected: AtomicU64::new(0),
            max_connections: AtomicU64::new(1_000_000),
            awaiting_hello: AtomicU64::new(0),
        }
    }
}

impl Stats {
    /// A command begins; `number` is that of its row.
    pub fn command_started(&self, number: usize, command: &'static Command) {
        self.count(|slot| {
            add(&slot.started, 1);
            if let Some(of) = slot.commands.get(number) {
                add(&of.total, 1);
            }
            let counter = match command.name {
                "find" => &slot.query,
                "getMore" => &slot.getmore,
                "insert" => &slot.insert,
                "update" => &slot.update,
                "delete" => &slot.delete,
                _ => &slot.command,
            };
            add(counter, 1);
        });
    }

    /// An insert, update or delete has more than one statement: these are counted one by one.
    pub fn more_statements(&self, command: &'static Command, more: u64) {
        self.count(|slot| match command.name {
            "insert" => add(&slot.insert, more),
            "update" => add(&slot.update, more),
            "delete" => add(&slot.delete, more),
            _ => {}
        });
    }

    /// A command has its reply.
    pub fn command_ended(&self, number: usize, command: &'static Command, reply: &Reply, asked: &Asked) {
        self.count(|slot| {
            add(&slot.ended, 1);
            if !reply.is_ok() {
                add(&slot.failed, 1);
                if let Some(of) = slot.commands.get(number) {
                    add(&of.failed, 1);
                }
            }
            let row = TARGETED.iter().position(|name| *name == command.name);
            let counters = row.and_then(|row| slot.targeted.get(row));
            if let Some(counter) = counters.and_then(|counters| counters.get(reach(asked))) {
                add(counter, 1);
            }
        });
    }

    /// A command that does not exist was asked for.
    pub fn command_unknown(&self) {
        self.count(|slot| add(&slot.unknown, 1));
    }

    /// How often commands ran and failed that do not exist (`None`) and that do: name, total, failed.
    #[must_use]
    pub fn of_commands(&self) -> (u64, Vec<(&'static str, u64, u64)>) {
        let sum = |counter: &dyn Fn(&Slot) -> u64| self.slots.iter().map(counter).sum::<u64>();
        let unknown = sum(&|slot| slot.unknown.load(Ordering::Relaxed));
        let of = |number: usize, counter: fn(&OfCommand) -> &AtomicU64| {
            sum(&|slot| slot.commands.get(number).map_or(0, |of| counter(of).load(Ordering::Relaxed)))
        };
        let mut all: Vec<_> = table::rows()
            .enumerate()
            .map(|(number, row)| (row.name, of(number, |of| &of.total), of(number, |of| &of.failed)))
            .collect();
        all.sort_unstable();
        (unknown, all)
    }

    /// How far the commands of [`TARGETED`] reached, by [`REACH`].
    #[must_use]
    pub fn targeted(&self) -> [[u64; REACH.len()]; TARGETED.len()] {
        let mut sums = [[0; REACH.len()]; TARGETED.len()];
        for slot in &self.slots {
            for (row, counters) in sums.iter_mut().zip(&slot.targeted) {
                for (sum, counter) in row.iter_mut().zip(counters) {
                    *sum += counter.load(Ordering::Relaxed);
                }
            }
        }
        sums
    }

    /// A hello waits for news of the topology until the guard is dropped.
    pub fn hello_waits(&self) -> impl Drop {
        struct Waits<'s>(&'s AtomicU64);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.awaiting_hello.fetch_add(1, Ordering::Relaxed);
        Waits(&self.awaiting_hello)
    }

    /// How many hellos wait.
    #[must_use]
    pub fn waiting_hellos(&self) -> u64 {
        self.awaiting_hello.load(Ordering::Relaxed)
    }

    /// A command was given up, since its client is gone.
    pub fn command_abandoned(&self) {
        self.count(|slot| add(&slot.ended, 1));
    }

    /// One message of a client came and was answered.
    pub fn exchanged(&self, bytes_in: usize, bytes_out: usize) {
        self.count(|slot| {
            add(&slot.requests, 1);
            add(&slot.bytes_in, bytes_in as u64);
            add(&slot.bytes_out, bytes_out as u64);
        });
    }

    /// The most client connections at a time.
    pub fn allow_connections(&self, most: u64) {
        self.max_connections.store(most, Ordering::Relaxed);
    }

    /// A client connected. `None` when there are too many; else how many there are now.
    pub fn connection_opened(&self) -> Option<u64> {
        let now = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        if now > self.max_connections.load(Ordering::Relaxed) {
            self.connections.fetch_sub(1, Ordering::Relaxed);
            self.connections_rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.connections_created.fetch_add(1, Ordering::Relaxed);
        Some(now)
    }

    /// A client left; gives how many there are now.
    pub fn connection_closed(&self) -> u64 {
        self.connections.fetch_sub(1, Ordering::Relaxed).saturating_sub(1)
    }

    /// Open client connections.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// The sums.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            connections: self.connections(),
            connections_created: self.connections_created.load(Ordering::Relaxed),
            connections_rejected: self.connections_rejected.load(Ordering::Relaxed),
            max_connections: self.max_connections.load(Ordering::Relaxed),
            ..Totals::default()
        };
        let (mut started, mut ended) = (0, 0);
        for slot in &self.slots {
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            totals.insert += get(&slot.insert);
            totals.query += get(&slot.query);
            totals.update += get(&slot.update);
            totals.delete += get(&slot.delete);
            totals.getmore += get(&slot.getmore);
            totals.command += get(&slot.command);
            totals.bytes_in += get(&slot.bytes_in);
            totals.bytes_out += get(&slot.bytes_out);
            totals.requests += get(&slot.requests);
            totals.failed += get(&slot.failed);
            started += get(&slot.started);
            ended += get(&slot.ended);
        }
        // The slots are not read at one instant.
        totals.active = u64::saturating_sub(started, ended);
        totals
    }

    fn count(&self, what: impl FnOnce(&Slot)) {
        if let Some(slot) = self.slots.get(slot_of_this_thread()) {
            what(slot);
        }
    }
}

/// The place in [`REACH`].
fn reach(asked: &Asked) -> usize {
    match (asked.owners(), asked.sets().len()) {
        (0, _) => 3,
        (_, 0 | 1) => 2,
        (owners, sets) if sets >= owners => 0,
        _ => 1,
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn slot_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS;
    }
    SLOT.with(|slot| *slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_sum_what_threads_count() {
        let stats = Stats::default();
        let (find_number, find) = table::find_numbered("find").unwrap();
        let (insert_number, insert) = table::find_numbered("insert").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    stats.command_started(find_number, find);
                    stats.exchanged(10, 20);
                });
            }
        });
        stats.command_started(insert_number, insert);
        stats.command_ended(
            insert_number,
            insert,
            &Reply::error(&crate::CommandError::bad_value("x")),
            &Asked::default(),
        );
        stats.more_statements(insert, 2);
        let totals = stats.totals();
        assert_eq!((totals.query, totals.insert, totals.active), (4, 3, 4));
        let (unknown, commands) = stats.of_commands();
        assert_eq!(unknown, 0);
        assert!(commands.contains(&("find", 4, 0)) && commands.contains(&("insert", 1, 1)));
        assert_eq!(stats.targeted(), [[0; 4], [0, 0, 0, 1], [0; 4], [0; 4], [0; 4]]);
        assert_eq!((totals.bytes_in, totals.bytes_out, totals.requests), (40, 80, 4));
    }

    #[test]
    fn connections_above_the_limit_are_turned_away() {
        let stats = Stats::default();
        stats.allow_connections(1);
        assert_eq!(stats.connection_opened(), Some(1));
        assert_eq!(stats.connection_opened(), None);
        assert_eq!(stats.connection_closed(), 0);
        assert_eq!(stats.connection_opened(), Some(1));
        assert_eq!(stats.totals().connections_rejected, 1);
    }
}
