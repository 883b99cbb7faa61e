//! Finding members, following elections, telling by name what is wrong.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::fake::{FakeServer, command, echo, eventually, topology};
use tokio::time::Instant;
use topology::{
    ConnectionString, Failure, ReadMode, ReadPreference, ServerAddress, Topology, TopologyOptions,
};

#[tokio::test]
async fn the_first_hello_is_there_when_a_member_is() {
    let fake = FakeServer::start().await;
    let (topology, set) = topology(&fake, |_| {}).await;
    let server = set.wait(&ReadPreference::PRIMARY, None).await.unwrap();
    assert_eq!(server.address(), &fake.shared.address);
    let hello = set.hello_reply().unwrap();
    assert_eq!(document::Doc::new(&hello).unwrap().get_str("setName"), Some("rs"));
    assert_eq!(set.connection_string(), fake.set());
    let same = topology.add(&fake.set()).unwrap();
    assert!(std::sync::Arc::ptr_eq(&same, &set));
}

#[tokio::test]
async fn a_new_host_list_is_told_to_all_who_listen() {
    let fake = FakeServer::start().await;
    let topology = Topology::new(TopologyOptions::default());
    let mut changes = topology.subscribe();
    let seeds = vec![fake.shared.address.clone(), ServerAddress::new("127.0.0.1", 1)];
    let set = topology.add(&ConnectionString { set_name: "rs".into(), hosts: seeds }).unwrap();
    let change = changes.recv().await.unwrap();
    assert_eq!(change.hosts, fake.set());
    assert_eq!(set.description().members().count(), 1);
}

#[tokio::test]
async fn a_step_down_is_seen_when_the_member_says_so() {
    let fake = FakeServer::start().await;
    // No heartbeat will come to help.
    let (_topology, set) = topology(&fake, |options| options.heartbeat = Duration::from_secs(3600)).await;
    set.wait(&ReadPreference::PRIMARY, None).await.unwrap();
    for primary in [false, true, false] {
        fake.become_role(|role| role.primary = primary);
        eventually("the change is seen", || set.primary().is_some() == primary).await;
    }
    let secondary = set.wait(&ReadPreference::of(ReadMode::Secondary), None).await.unwrap();
    echo(&mut secondary.checkout(None).await.unwrap(), 1).await.unwrap();
}

#[tokio::test]
async fn a_reported_member_is_asked_at_once() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |options| options.heartbeat = Duration::from_secs(3600)).await;
    let server = set.wait(&ReadPreference::PRIMARY, None).await.unwrap();
    drop(server.checkout(None).await.unwrap());
    for (failure, idle) in [(Failure::NotPrimary, 1), (Failure::Shutdown, 0)] {
        set.report(&server, failure);
        assert!(set.primary().is_none());
        assert_eq!(server.pool_stats().idle, idle, "{failure:?}");
        eventually("it is primary again", || set.primary().is_some()).await;
    }
}

#[tokio::test]
async fn a_restarted_member_is_found_again() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = set.wait(&ReadPreference::PRIMARY, None).await.unwrap();
    let mut connection = server.checkout(None).await.unwrap();
    fake.hang_up();
    assert!(connection.exchange(&mut command("echo", &[("n", 1)]), None).await.is_err());
    let server = set.wait(&ReadPreference::PRIMARY, None).await.unwrap();
    echo(&mut server.checkout(None).await.unwrap(), 2).await.unwrap();
}

#[tokio::test]
async fn who_waits_in_vain_is_told_for_what() {
    let fake = FakeServer::start().await;
    let (_topology, set) =
        topology(&fake, |options| options.selection_timeout = Duration::from_millis(100)).await;
    set.wait(&ReadPreference::PRIMARY, None).await.unwrap();
    fake.become_role(|role| role.primary = false);
    eventually("the primary is gone", || set.primary().is_none()).await;
    let error = set.wait(&ReadPreference::PRIMARY, None).await.unwrap_err();
    let expected = "Could not find host matching read preference { mode: \"primary\" } for set rs";
    assert_eq!((error.code(), error.to_string().as_str()), (133, expected));
    let early = Some(Instant::now() + Duration::from_millis(10));
    assert_eq!(set.wait(&ReadPreference::PRIMARY, early).await.unwrap_err().code(), 50);
}

#[tokio::test]
async fn members_of_another_set_or_version_are_refused_at_once() {
    for (set_name, wire_version, code) in [("other", 17, 93), ("rs", 13, 188)] {
        let fake = FakeServer::start().await;
        fake.become_role(|role| {
            role.set_name = set_name;
            role.wire_version = wire_version;
        });
        let (_topology, set) =
            topology(&fake, |options| options.selection_timeout = Duration::from_secs(3600)).await;
        let error = set.wait(&ReadPreference::NEAREST, None).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(fake.shared.address.as_str()), "{error}");
        assert!(set.hello_reply().is_none(), "a stranger's times are not ours");
    }
}

#[tokio::test]
async fn removed_and_shut_down_sets_leave_nothing_open() {
    let fake = FakeServer::start().await;
    let (topology, set) = topology(&fake, |_| {}).await;
    let server = set.wait(&ReadPreference::PRIMARY, None).await.unwrap();
    drop(server.checkout(None).await.unwrap());
    assert!(topology.remove("rs"));
    assert!(!topology.remove("rs"));
    eventually("all connections are closed", || fake.shared.open.load(SeqCst) == 0).await;
    assert!(set.select(&ReadPreference::PRIMARY).is_none());
    assert_eq!(set.wait(&ReadPreference::PRIMARY, None).await.unwrap_err().code(), 91);
    assert!(server.checkout(None).await.is_err());

    let again = topology.add(&fake.set()).unwrap();
    again.wait(&ReadPreference::PRIMARY, None).await.unwrap();
    topology.shutdown().await;
    eventually("all connections are closed", || fake.shared.open.load(SeqCst) == 0).await;
    assert_eq!(topology.add(&fake.set()).unwrap_err().code(), 91);
}

#[tokio::test]
async fn waiters_learn_that_their_set_is_removed() {
    let fake = FakeServer::start().await;
    fake.become_role(|role| role.primary = false);
    let (topology, set) = topology(&fake, |_| {}).await;
    let waiter = tokio::spawn(async move { set.wait(&ReadPreference::PRIMARY, None).await.map(drop) });
    tokio::task::yield_now().await;
    topology.remove("rs");
    assert_eq!(waiter.await.unwrap().unwrap_err().code(), 91);
}
