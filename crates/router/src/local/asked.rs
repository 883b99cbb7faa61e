//! Which shards the command of this task has asked so far, and how long it waited for each.
//!
//! Every request to a server passes [`note`]; what it adds lands with the command whose task it runs in, so that no
//! handler has to carry it along. Outside of a command (monitors, refreshes in the background) it lands nowhere.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

tokio::task_local! {
    static ASKED: RefCell<Asked>;
}

/// One replica set that was asked.
#[derive(Debug, Clone)]
pub struct AskedSet {
    /// Name of the set.
    pub set: Arc<str>,
    /// How many requests went there.
    pub requests: u32,
    /// Time from the first byte sent to the last one received, all requests together.
    pub waited: Duration,
}

/// What a command asked of the cluster.
#[derive(Debug, Default)]
pub struct Asked {
    sets: SmallVec<[AskedSet; 4]>,
    /// How many shards own ranges of the collection that was routed last; 0 when it is not sharded.
    owners: usize,
}

impl Asked {
    /// The sets, in the order in which they answered first.
    #[must_use]
    pub fn sets(&self) -> &[AskedSet] {
        &self.sets
    }

    /// How many shards own ranges of the command's collection; 0 when it is not sharded.
    #[must_use]
    pub const fn owners(&self) -> usize {
        self.owners
    }

    fn add(&mut self, set: &Arc<str>, waited: Duration) {
        match self.sets.iter_mut().find(|asked| Arc::ptr_eq(&asked.set, set)) {
            Some(asked) => {
                asked.requests = asked.requests.saturating_add(1);
                asked.waited += waited;
            }
            None => self.sets.push(AskedSet { set: Arc::clone(set), requests: 1, waited }),
        }
    }
}

/// Runs a command's work and gives what it asked beside its result.
pub async fn watch<T>(work: impl Future<Output = T>) -> (T, Asked) {
    let mut work = pin!(ASKED.scope(RefCell::default(), work));
    let done = work.as_mut().await;
    let asked = work.as_mut().take_value().map(RefCell::into_inner).unwrap_or_default();
    (done, asked)
}

/// A set was asked and has answered, or has not.
pub(crate) fn note(set: &Arc<str>, waited: Duration) {
    let _ = ASKED.try_with(|asked| asked.borrow_mut().add(set, waited));
}

/// The command's collection was looked up: this many shards own ranges of it.
pub(crate) fn routed(owners: usize) {
    let _ = ASKED.try_with(|asked| asked.borrow_mut().owners = owners);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_of_a_command_are_summed_by_set() {
        let (first, second): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        note(&first, Duration::from_millis(9));
        let ((), asked) = watch(async {
            note(&first, Duration::from_millis(1));
            note(&second, Duration::from_millis(2));
            note(&first, Duration::from_millis(3));
            routed(2);
        })
        .await;
        let seen: Vec<_> =
            asked.sets().iter().map(|set| (&*set.set, set.requests, set.waited.as_millis())).collect();
        assert_eq!(seen, [("a", 2, 4), ("b", 1, 2)]);
        assert_eq!(asked.owners(), 2);
    }
}
