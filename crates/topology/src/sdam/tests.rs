//! The state machine against scripted members.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::{Effect, Member, Sdam, choose};
use crate::address::ServerAddress;
use crate::error::TopologyError;
use crate::hello::{HelloReply, MemberKind, TopologyVersion};
use crate::read_preference::{ReadMode, ReadPreference};

const ALL: [&str; 3] = ["a:1", "b:1", "c:1"];

fn at(host: &str) -> ServerAddress {
    ServerAddress::parse(host).unwrap()
}

fn sdam(seeds: &[&str]) -> Sdam {
    let seeds: Vec<_> = seeds.iter().map(|seed| at(seed)).collect();
    Sdam::new(Arc::from("rs"), 17, &seeds)
}

fn hello(kind: MemberKind) -> HelloReply {
    HelloReply::for_tests(kind, "rs", &ALL)
}

fn primary(election: u8, set_version: i64) -> HelloReply {
    HelloReply {
        election_id: Some([election; 12]),
        set_version: Some(set_version),
        ..hello(MemberKind::Primary)
    }
}

fn say(sdam: &mut Sdam, host: &str, hello: &HelloReply) -> Vec<Effect> {
    sdam.on_hello(&at(host), hello, Instant::now())
}

fn kinds(sdam: &Sdam) -> Vec<(String, MemberKind)> {
    sdam.members().map(|member| (member.address.host().to_owned(), member.kind)).collect()
}

fn member<'a>(sdam: &'a Sdam, host: &str) -> &'a Member {
    sdam.members().find(|member| member.address == at(host)).unwrap()
}

#[test]
fn one_seed_finds_the_whole_set() {
    let mut sdam = sdam(&["b:1"]);
    let effects = say(&mut sdam, "b:1", &hello(MemberKind::Secondary));
    assert_eq!(effects, [Effect::Add(at("a:1")), Effect::Add(at("c:1"))]);
    let effects = say(&mut sdam, "a:1", &primary(1, 1));
    assert_eq!(effects, [Effect::HostsConfirmed(ALL.map(at).to_vec())]);
    assert_eq!(
        kinds(&sdam),
        [
            ("a".to_owned(), MemberKind::Primary),
            ("b".to_owned(), MemberKind::Secondary),
            ("c".to_owned(), MemberKind::Unknown)
        ]
    );
}

#[test]
fn a_new_primary_takes_the_place_of_the_old_one() {
    let mut sdam = sdam(&ALL);
    say(&mut sdam, "a:1", &primary(1, 1));
    say(&mut sdam, "b:1", &primary(2, 1));
    assert_eq!(member(&sdam, "a:1").kind, MemberKind::Unknown);
    assert_eq!(member(&sdam, "b:1").kind, MemberKind::Primary);
}

#[test]
fn a_primary_of_an_older_election_is_not_believed() {
    let mut sdam = sdam(&ALL);
    say(&mut sdam, "b:1", &primary(2, 1));
    say(&mut sdam, "a:1", &primary(1, 1));
    assert_eq!(member(&sdam, "a:1").kind, MemberKind::Unknown);
    assert!(matches!(member(&sdam, "a:1").error.as_deref(), Some(TopologyError::StalePrimary { .. })));
    assert_eq!(member(&sdam, "b:1").kind, MemberKind::Primary);
    // The election counts before the configuration's version does.
    say(&mut sdam, "a:1", &primary(1, 9));
    assert_eq!(member(&sdam, "a:1").kind, MemberKind::Unknown);
    say(&mut sdam, "a:1", &primary(2, 2));
    assert_eq!(member(&sdam, "a:1").kind, MemberKind::Primary);
}

#[test]
fn a_reconfiguration_adds_and_removes_members() {
    let mut sdam = sdam(&ALL);
    say(&mut sdam, "a:1", &primary(1, 1));
    let changed = HelloReply { hosts: vec![at("a:1"), at("d:1")], ..primary(1, 2) };
    let effects = say(&mut sdam, "a:1", &changed);
    assert_eq!(
        effects,
        [
            Effect::Add(at("d:1")),
            Effect::Remove(at("b:1")),
            Effect::Remove(at("c:1")),
            Effect::HostsConfirmed(vec![at("a:1"), at("d:1")])
        ]
    );
    // The same list again is no news.
    assert_eq!(say(&mut sdam, "a:1", &changed), []);
    // A removed member may go on talking.
    assert_eq!(say(&mut sdam, "b:1", &primary(9, 9)), []);
    assert_eq!(member(&sdam, "a:1").kind, MemberKind::Primary);
}

#[test]
fn a_secondary_does_not_change_the_list_while_there_is_a_primary() {
    let mut sdam = sdam(&ALL);
    say(&mut sdam, "a:1", &primary(1, 1));
    let strange = HelloReply { hosts: vec![at("x:1")], ..hello(MemberKind::Secondary) };
    assert_eq!(say(&mut sdam, "b:1", &strange), []);
    assert_eq!(member(&sdam, "b:1").kind, MemberKind::Secondary);
}

#[test]
fn a_member_under_another_name_is_known_by_the_sets_own() {
    let mut sdam = sdam(&["localhost:1"]);
    let reply = HelloReply { me: Some(at("a:1")), ..hello(MemberKind::Secondary) };
    let effects = say(&mut sdam, "localhost:1", &reply);
    assert!(effects.contains(&Effect::Remove(at("localhost:1"))), "{effects:?}");
    assert!(effects.contains(&Effect::Add(at("a:1"))), "{effects:?}");
}

#[test]
fn a_member_of_another_set_is_refused_by_name() {
    let mut sdam = sdam(&["a:1"]);
    for (kind, name) in [(MemberKind::Primary, Some("other")), (MemberKind::NoMember, None)] {
        let reply = HelloReply { set_name: name.map(str::to_owned), ..hello(kind) };
        assert_eq!(say(&mut sdam, "a:1", &reply), []);
        let error = member(&sdam, "a:1").error.clone().unwrap();
        assert_eq!(error.code(), 93);
        let expected =
            format!("Server at a:1 belongs to replica set {}, expected rs", name.unwrap_or("none"));
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_member_of_another_version_is_refused_by_name() {
    for (min, max, good) in [(17, 17, true), (0, 17, true), (13, 13, false), (21, 21, false), (17, 21, true)]
    {
        let mut sdam = sdam(&ALL);
        let reply = HelloReply { min_wire_version: min, max_wire_version: max, ..primary(1, 1) };
        say(&mut sdam, "a:1", &reply);
        let member = member(&sdam, "a:1");
        assert_eq!(member.kind == MemberKind::Primary, good, "{min}..{max}");
        assert_eq!(member.error.as_ref().map(|error| error.code()), (!good).then_some(188));
    }
}

#[test]
fn a_failure_makes_unknown_and_empties_only_that_pool() {
    let mut sdam = sdam(&ALL);
    say(&mut sdam, "a:1", &primary(1, 1));
    say(&mut sdam, "b:1", &hello(MemberKind::Secondary));
    let lost = TopologyError::ConnectTimeout { address: at("a:1") };
    assert_eq!(sdam.on_failure(&at("a:1"), lost), [Effect::ClearPool(at("a:1"))]);
    assert_eq!(member(&sdam, "a:1").kind, MemberKind::Unknown);
    assert_eq!(member(&sdam, "b:1").kind, MemberKind::Secondary);
    // A step-down leaves the connections alone: the server keeps them too.
    say(&mut sdam, "a:1", &primary(1, 1));
    assert_eq!(sdam.on_failure(&at("a:1"), TopologyError::NotPrimary { address: at("a:1") }), []);
    assert_eq!(member(&sdam, "a:1").kind, MemberKind::Unknown);
    // Nobody.
    assert_eq!(sdam.on_failure(&at("x:1"), TopologyError::NoSeeds), []);
}

#[test]
fn an_older_reply_of_the_same_process_is_ignored() {
    let version = |process, counter| Some(TopologyVersion { process_id: [process; 12], counter });
    let mut sdam = sdam(&ALL);
    say(&mut sdam, "a:1", &HelloReply { topology_version: version(1, 5), ..primary(1, 1) });
    let older = HelloReply { topology_version: version(1, 4), ..hello(MemberKind::Secondary) };
    say(&mut sdam, "a:1", &older);
    assert_eq!(member(&sdam, "a:1").kind, MemberKind::Primary);
    let restarted = HelloReply { topology_version: version(2, 0), ..hello(MemberKind::Secondary) };
    say(&mut sdam, "a:1", &restarted);
    assert_eq!(member(&sdam, "a:1").kind, MemberKind::Secondary);
}

/// Three members: a primary at 5 ms, secondaries at 1 ms (lagging 100 s, `dc: ny`) and at 30 ms (`dc: sf`).
fn three() -> Vec<Member> {
    let mut sdam = sdam(&ALL);
    let tags = |dc: &str| vec![("dc".to_owned(), dc.to_owned())];
    let now = Instant::now();
    sdam.on_hello(&at("a:1"), &HelloReply { last_write_ms: Some(1_000_000), ..primary(1, 1) }, now);
    let secondary = |dc, last_write| HelloReply {
        tags: tags(dc),
        last_write_ms: Some(last_write),
        ..hello(MemberKind::Secondary)
    };
    sdam.on_hello(&at("b:1"), &secondary("ny", 900_000), now);
    sdam.on_hello(&at("c:1"), &secondary("sf", 1_000_000), now);
    for (host, ms) in [("a:1", 5), ("b:1", 1), ("c:1", 30)] {
        sdam.on_round_trip(&at(host), Duration::from_millis(ms));
    }
    sdam.members().cloned().collect()
}

fn hosts(members: &[Member], preference: &ReadPreference) -> String {
    let choice = choose(members, preference, Duration::from_millis(15), Duration::from_secs(10));
    choice.iter().map(|index| members[*index].address.host()).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_mode_chooses_its_members_within_the_latency_window() {
    let members = three();
    let without_primary =
        || members.iter().filter(|member| member.kind != MemberKind::Primary).cloned().collect();
    let only_primary =
        || members.iter().filter(|member| member.kind == MemberKind::Primary).cloned().collect();
    let check = |members: Vec<Member>, expected: [&str; 5]| {
        let modes = [
            ReadMode::Primary,
            ReadMode::PrimaryPreferred,
            ReadMode::Secondary,
            ReadMode::SecondaryPreferred,
            ReadMode::Nearest,
        ];
        for (mode, expected) in modes.into_iter().zip(expected) {
            let mut chosen: Vec<_> =
                hosts(&members, &ReadPreference::of(mode)).split(' ').map(str::to_owned).collect();
            chosen.sort();
            assert_eq!(chosen.join(" "), expected, "{mode:?}");
        }
    };
    check(members.clone(), ["a", "a", "b", "b", "a b"]);
    check(without_primary(), ["", "b", "b", "b", "b"]);
    check(only_primary(), ["a", "a", "", "a", "a"]);
}

#[test]
fn the_first_tag_set_that_matches_counts() {
    let members = three();
    let with = |tags: &[&[(&str, &str)]]| {
        let mut doc = document::DocBuf::new();
        doc.write(|w| {
            w.put("mode", "nearest");
            w.array("tags", tags, |w, index, set| {
                w.doc(index, |w| set.iter().for_each(|(name, value)| w.put(name, *value)));
            });
        });
        hosts(&members, &ReadPreference::from_doc(doc.as_doc()).unwrap())
    };
    assert_eq!(with(&[&[("dc", "sf")]]), "c");
    assert_eq!(with(&[&[("dc", "xx")], &[("dc", "sf")]]), "c");
    assert_eq!(with(&[&[("dc", "xx")]]), "");
    assert_eq!(with(&[&[("dc", "xx")], &[]]), "b a");
}

#[test]
fn a_secondary_that_lags_too_far_is_not_read() {
    let members = three();
    let within = |seconds: i32| {
        let mut doc = document::DocBuf::new();
        doc.append("mode", "secondary").append("maxStalenessSeconds", seconds);
        hosts(&members, &ReadPreference::from_doc(doc.as_doc()).unwrap())
    };
    assert_eq!(within(120), "b");
    // 100 s behind, and up to a heartbeat more since it was asked.
    assert_eq!(within(105), "c");
}

proptest! {
    #[test]
    fn whatever_members_say_there_is_at_most_one_primary_and_every_member_is_watched(
        events in proptest::collection::vec(
            (0usize..4, 0usize..7, 0u8..4, 0i64..4, proptest::collection::vec(0usize..4, 0..4)), 0..40)
    ) {
        let names = ["a:1", "b:1", "c:1", "d:1"];
        let mut sdam = sdam(&["a:1"]);
        let mut watched = std::collections::BTreeSet::from([at("a:1")]);
        for (who, what, election, version, listed) in events {
            let hosts = listed.into_iter().map(|index| at(names[index])).collect();
            let kind = [
                MemberKind::Primary, MemberKind::Secondary, MemberKind::Arbiter, MemberKind::Other,
                MemberKind::Ghost, MemberKind::NoMember,
            ].get(what).copied();
            let effects = match kind {
                Some(kind) => say(&mut sdam, names[who], &HelloReply {
                    election_id: Some([election; 12]), set_version: Some(version), hosts, ..hello(kind)
                }),
                None => sdam.on_failure(&at(names[who]), TopologyError::NoSeeds),
            };
            for effect in effects {
                match effect {
                    Effect::Add(address) => prop_assert!(watched.insert(address)),
                    Effect::Remove(address) => prop_assert!(watched.remove(&address)),
                    Effect::ClearPool(address) => prop_assert!(watched.contains(&address)),
                    Effect::HostsConfirmed(_) => {}
                }
            }
            let known: std::collections::BTreeSet<_> = sdam.members().map(|member| member.address.clone()).collect();
            prop_assert_eq!(&known, &watched);
            prop_assert!(sdam.members().filter(|member| member.kind == MemberKind::Primary).count() <= 1);
        }
    }
}
