//! The members and the transitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::address::ServerAddress;
use crate::connect::check_version;
use crate::error::TopologyError;
use crate::hello::{HelloReply, MemberKind, TopologyVersion};

/// Weight of a new round trip in the average.
const ROUND_TRIP_WEIGHT: f64 = 0.2;

/// What is known about one member.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) address: ServerAddress,
    pub(crate) kind: MemberKind,
    pub(crate) tags: Vec<(String, String)>,
    /// Average round trip; kept while the member is unknown.
    pub(crate) round_trip: Option<Duration>,
    pub(crate) last_write_ms: Option<i64>,
    /// When the last hello came.
    pub(crate) updated: Option<Instant>,
    /// Why it is unknown.
    pub(crate) error: Option<Arc<TopologyError>>,
    topology_version: Option<TopologyVersion>,
}

/// What has to be done outside after an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A member to monitor.
    Add(ServerAddress),
    /// A member to forget, with its pool.
    Remove(ServerAddress),
    /// Connections to it are of no use any more.
    ClearPool(ServerAddress),
    /// A primary named these hosts, other than before.
    HostsConfirmed(Vec<ServerAddress>),
}

/// The newest election that was seen: a primary with a lower one is stale.
type Election = (Option<[u8; 12]>, Option<i64>);

/// The state of one set.
#[derive(Debug)]
pub(crate) struct Sdam {
    set_name: Arc<str>,
    wire_version: i32,
    members: BTreeMap<ServerAddress, Member>,
    newest: Election,
    confirmed: Vec<ServerAddress>,
}

impl Member {
    fn new(address: ServerAddress) -> Member {
        Member {
            address,
            kind: MemberKind::Unknown,
            tags: Vec::new(),
            round_trip: None,
            last_write_ms: None,
            updated: None,
            error: None,
            topology_version: None,
        }
    }

    /// True when it may be read.
    pub(crate) fn has_data(&self) -> bool {
        matches!(self.kind, MemberKind::Primary | MemberKind::Secondary)
    }

    fn forget(&mut self, error: TopologyError) {
        self.kind = MemberKind::Unknown;
        self.topology_version = None;
        self.error = Some(Arc::new(error));
    }

    fn learn(&mut self, hello: &HelloReply, now: Instant) {
        self.kind = hello.kind;
        self.tags.clone_from(&hello.tags);
        self.last_write_ms = hello.last_write_ms;
        self.topology_version = hello.topology_version;
        self.updated = Some(now);
        self.error = None;
    }
}

impl Sdam {
    pub(crate) fn new(set_name: Arc<str>, wire_version: i32, seeds: &[ServerAddress]) -> Sdam {
        let members = seeds.iter().map(|seed| (seed.clone(), Member::new(seed.clone()))).collect();
        Sdam { set_name, wire_version, members, newest: (None, None), confirmed: Vec::new() }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// The host list of the last primary; empty before there was one.
    pub(crate) fn confirmed(&self) -> &[ServerAddress] {
        &self.confirmed
    }

    /// A round trip was measured.
    pub(crate) fn on_round_trip(&mut self, address: &ServerAddress, sample: Duration) {
        if let Some(member) = self.members.get_mut(address) {
            member.round_trip = Some(match member.round_trip {
                None => sample,
                Some(average) => sample.mul_f64(ROUND_TRIP_WEIGHT) + average.mul_f64(1.0 - ROUND_TRIP_WEIGHT),
            });
        }
    }

    /// A member answered `hello`.
    pub(crate) fn on_hello(
        &mut self,
        address: &ServerAddress,
        hello: &HelloReply,
        now: Instant,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(member) = self.members.get_mut(address) else { return effects };
        if let (Some(known), Some(told)) = (&member.topology_version, &hello.topology_version)
            && told.is_older_than(known)
        {
            return effects;
        }
        if let Err(error) = self.check(address, hello) {
            self.forget(address, error);
            return effects;
        }
        match hello.kind {
            MemberKind::Primary => self.on_primary(address, hello, now, &mut effects),
            MemberKind::Secondary | MemberKind::Arbiter | MemberKind::Other => {
                self.on_member(address, hello, now, &mut effects);
            }
            MemberKind::Ghost | MemberKind::NoMember | MemberKind::Unknown => {
                if let Some(member) = self.members.get_mut(address) {
                    member.learn(hello, now);
                }
            }
        }
        effects
    }

    /// Talking to a member failed, or it said that it is not what it was.
    pub(crate) fn on_failure(&mut self, address: &ServerAddress, error: TopologyError) -> Vec<Effect> {
        let clear = !matches!(error, TopologyError::NotPrimary { .. });
        self.forget(address, error);
        if clear && self.members.contains_key(address) {
            vec![Effect::ClearPool(address.clone())]
        } else {
            Vec::new()
        }
    }

    /// The set's name and the wire version must be right; no set name is right for a member that has none yet.
    fn check(&self, address: &ServerAddress, hello: &HelloReply) -> Result<(), TopologyError> {
        let wrong = |got: &str| TopologyError::WrongSetName {
            address: address.clone(),
            expected: self.set_name.clone(),
            got: got.to_owned(),
        };
        match (hello.kind, hello.set_name.as_deref()) {
            (MemberKind::NoMember, _) => return Err(wrong("none")),
            (MemberKind::Ghost, _) => {}
            (_, Some(name)) if name == &*self.set_name => {}
            (_, name) => return Err(wrong(name.unwrap_or("none"))),
        }
        check_version(address, hello, self.wire_version)
    }

    fn forget(&mut self, address: &ServerAddress, error: TopologyError) {
        if let Some(member) = self.members.get_mut(address) {
            member.forget(error);
        }
    }

    fn on_primary(
        &mut self,
        address: &ServerAddress,
        hello: &HelloReply,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let election = (hello.election_id, hello.set_version);
        if election < self.newest {
            self.forget(address, TopologyError::StalePrimary { address: address.clone() });
            return;
        }
        self.newest = election;
        for other in self.members.values_mut() {
            if other.address != *address && other.kind == MemberKind::Primary {
                other.forget(TopologyError::StalePrimary { address: other.address.clone() });
            }
        }
        if let Some(member) = self.members.get_mut(address) {
            member.learn(hello, now);
        }
        self.add_hosts(&hello.hosts, effects);
        let gone: Vec<_> =
            self.members.keys().filter(|known| !hello.hosts.contains(known)).cloned().collect();
        for known in gone {
            self.members.remove(&known);
            effects.push(Effect::Remove(known));
        }
        if self.confirmed != hello.hosts {
            self.confirmed.clone_from(&hello.hosts);
            effects.push(Effect::HostsConfirmed(hello.hosts.clone()));
        }
    }

    fn on_member(
        &mut self,
        address: &ServerAddress,
        hello: &HelloReply,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let has_primary = self
            .members
            .values()
            .any(|member| member.kind == MemberKind::Primary && member.address != *address);
        if !has_primary {
            // Only a primary's list is certain; before there is one, every name is worth a try.
            self.add_hosts(&hello.hosts, effects);
        }
        if hello.me.as_ref().is_some_and(|me| me != address) {
            // A seed under another name than the set's own; the member is known by that one.
            self.members.remove(address);
            effects.push(Effect::Remove(address.clone()));
            return;
        }
        if let Some(member) = self.members.get_mut(address) {
            member.learn(hello, now);
        }
    }

    fn add_hosts(&mut self, hosts: &[ServerAddress], effects: &mut Vec<Effect>) {
        for host in hosts {
            if !self.members.contains_key(host) {
                self.members.insert(host.clone(), Member::new(host.clone()));
                effects.push(Effect::Add(host.clone()));
            }
        }
    }
}
