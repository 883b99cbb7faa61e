//! Connections to one member: shared, bounded, never handed on in an unclear state.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::fake::{FakeServer, command, echo, eventually, topology};
use tokio::time::Instant;
use topology::{ReadPreference, ReplicaSet, Server, TopologyError};
use wire::MsgFlags;

async fn primary(set: &ReplicaSet) -> Arc<Server> {
    set.wait(&ReadPreference::PRIMARY, None).await.unwrap()
}

fn soon(ms: u64) -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(ms))
}

#[tokio::test]
async fn one_caller_uses_one_connection() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    for number in 0..100 {
        echo(&mut server.checkout(None).await.unwrap(), number).await.unwrap();
    }
    assert_eq!(fake.shared.pooled.load(SeqCst), 1);
    let stats = server.pool_stats();
    assert_eq!((stats.in_use, stats.idle, stats.created), (0, 1, 1));
}

#[tokio::test]
async fn many_callers_share_as_many_connections_as_the_limit_allows() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |options| options.pool.max_size = 20).await;
    let server = primary(&set).await;
    let callers: Vec<_> = (0..500)
        .map(|caller| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                for number in 0..4 {
                    echo(&mut server.checkout(None).await.unwrap(), caller * 10 + number).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let made = fake.shared.pooled.load(SeqCst);
    assert!((1..=20).contains(&made), "{made} connections");
    assert_eq!(server.pool_stats().waiting, 0);
}

#[tokio::test]
async fn at_most_two_handshakes_run_at_once_however_many_wait() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    fake.hold_handshakes(true);
    let callers: Vec<_> = (0..50)
        .map(|number| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let mut connection = server.checkout(None).await.unwrap();
                echo(&mut connection, number).await.unwrap();
            })
        })
        .collect();
    eventually("both handshakes hang", || fake.shared.shaking.load(SeqCst) == 2).await;
    eventually("all callers wait", || server.pool_stats().waiting == 50).await;
    assert_eq!(server.pool_stats().connecting, 2);
    fake.hold_handshakes(false);
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(fake.shared.most_shaking.load(SeqCst), 2);
}

#[tokio::test]
async fn callers_are_served_in_the_order_they_came() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |options| options.pool.max_size = 1).await;
    let server = primary(&set).await;
    let held = server.checkout(None).await.unwrap();
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut callers = Vec::new();
    for number in 0..5 {
        let (mine, order) = (Arc::clone(&server), Arc::clone(&order));
        callers.push(tokio::spawn(async move {
            let _connection = mine.checkout(None).await.unwrap();
            order.lock().push(number);
        }));
        eventually("the caller waits", || server.pool_stats().waiting == number + 1).await;
    }
    drop(held);
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_waiter_that_goes_away_does_not_take_a_connection_with_it() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |options| options.pool.max_size = 1).await;
    let server = primary(&set).await;
    let held = server.checkout(None).await.unwrap();
    for _ in 0..3 {
        assert!(matches!(server.checkout(soon(5)).await, Err(TopologyError::DeadlineExceeded)));
    }
    let next = {
        let server = Arc::clone(&server);
        tokio::spawn(async move { echo(&mut server.checkout(None).await.unwrap(), 1).await.map(drop) })
    };
    eventually("one waits", || server.pool_stats().waiting == 1).await;
    drop(held);
    next.await.unwrap().unwrap();
    assert_eq!(fake.shared.pooled.load(SeqCst), 1);
}

#[tokio::test]
async fn a_caller_without_a_deadline_waits_for_the_pools_own_limit() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |options| {
        options.pool.max_size = 1;
        options.pool.wait_timeout = Duration::from_millis(30);
    })
    .await;
    let server = primary(&set).await;
    let _held = server.checkout(None).await.unwrap();
    let error = server.checkout(None).await.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        (202, "Couldn't get a connection within the time limit")
    );
}

#[tokio::test]
async fn an_exchange_cut_short_closes_its_connection() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    for name in ["mute", "halfAnswer"] {
        let before = fake.shared.pooled.load(SeqCst);
        let mut connection = server.checkout(None).await.unwrap();
        let error = connection.exchange(&mut command(name, &[]), soon(20)).await.unwrap_err();
        assert_eq!(error.code(), 50, "{error}");
        // No answer is open to the next caller of the same connection either.
        assert!(connection.exchange(&mut command(name, &[]), None).await.is_err());
        drop(connection);
        assert_eq!(server.pool_stats().idle, 0);
        echo(&mut server.checkout(None).await.unwrap(), 7).await.unwrap();
        assert_eq!(fake.shared.pooled.load(SeqCst) - before, if before == 0 { 2 } else { 1 });
    }
    // The server is not to blame.
    assert!(set.primary().is_some());
    assert_eq!(server.pool_stats().cleared, 0);
}

#[tokio::test]
async fn a_dropped_exchange_closes_its_connection() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    let caller = {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let mut connection = server.checkout(None).await.unwrap();
            drop(connection.exchange(&mut command("mute", &[]), None).await);
        })
    };
    eventually("the exchange hangs", || server.pool_stats().in_use == 1).await;
    caller.abort();
    caller.await.unwrap_err();
    let stats = server.pool_stats();
    assert_eq!((stats.in_use, stats.idle), (0, 0));
}

#[tokio::test]
async fn an_answer_to_another_request_closes_the_connection() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    for name in ["wrongAnswer", "hangUp"] {
        let server = primary(&set).await;
        let mut connection = server.checkout(None).await.unwrap();
        let error = connection.exchange(&mut command(name, &[]), None).await.unwrap_err();
        assert!(error.is_network(), "{error:?}");
        assert!(!error.is_before_send());
        drop(connection);
        assert_eq!(server.pool_stats().idle, 0, "{name}");
    }
    echo(&mut primary(&set).await.checkout(None).await.unwrap(), 3).await.unwrap();
}

#[tokio::test]
async fn an_answer_too_many_is_never_read_as_the_next_one() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    let mut connection = server.checkout(None).await.unwrap();
    connection.exchange(&mut command("twoAnswers", &[]), None).await.unwrap();
    drop(connection);
    echo(&mut server.checkout(None).await.unwrap(), 9).await.unwrap();
}

#[tokio::test]
async fn connections_that_died_while_idle_cost_no_caller_an_error() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    let held: Vec<_> = [server.checkout(None).await.unwrap(), server.checkout(None).await.unwrap()].into();
    drop(held);
    assert_eq!(server.pool_stats().idle, 2);
    fake.hang_up();
    eventually("all is closed", || fake.shared.open.load(SeqCst) == 0 || server.pool_stats().idle == 0).await;
    let server = primary(&set).await;
    echo(&mut server.checkout(None).await.unwrap(), 4).await.unwrap();
}

#[tokio::test]
async fn the_halves_of_an_exchange_let_one_caller_ask_many() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    let mut connections = Vec::new();
    for number in 0..5 {
        let mut connection = server.checkout(None).await.unwrap();
        connection.send(&mut command("echo", &[("n", number)]), None).await.unwrap();
        connections.push(connection);
    }
    for (number, connection) in (0..).zip(&mut connections) {
        let reply = connection.recv(None).await.unwrap();
        assert_eq!(reply.body().get_i64("echo"), Some(number));
    }
    drop(connections);
    assert_eq!(server.pool_stats().idle, 5);
}

#[tokio::test]
async fn a_message_without_an_answer_leaves_the_connection_clean() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    let mut connection = server.checkout(None).await.unwrap();
    let mut message = command("echo", &[("n", 1)]);
    message[16..20].copy_from_slice(&MsgFlags::MORE_TO_COME.bits().to_le_bytes());
    connection.send_no_reply(&mut message, None).await.unwrap();
    echo(&mut connection, 2).await.unwrap();
    drop(connection);
    assert_eq!(server.pool_stats().idle, 1);
}

#[tokio::test]
async fn a_large_answer_comes_whole() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    let mut connection = server.checkout(None).await.unwrap();
    let mut request = command("echo", &[("n", 1), ("size", 20_000_000)]);
    let reply = connection.exchange(&mut request, None).await.unwrap();
    assert_eq!(reply.body().get_str("filler").map(str::len), Some(20_000_000));
    echo(&mut connection, 2).await.unwrap();
}

#[tokio::test]
async fn a_member_that_refuses_connections_is_left_out_after_the_first_failure() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    fake.stop();
    let error = server.checkout(None).await.unwrap_err();
    let expected = format!("Error connecting to {} :: caused by :: Connection refused", server.address());
    assert_eq!((error.code(), error.to_string()), (6, expected));
    assert!(error.is_before_send());
    assert!(set.select(&ReadPreference::NEAREST).is_none());
}

#[tokio::test]
async fn one_broken_connection_empties_the_pool_once() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |_| {}).await;
    let server = primary(&set).await;
    let mut first = server.checkout(None).await.unwrap();
    let mut second = server.checkout(None).await.unwrap();
    let third = server.checkout(None).await.unwrap();
    first.send(&mut command("hangUp", &[]), None).await.unwrap();
    second.send(&mut command("hangUp", &[]), None).await.unwrap();
    assert!(first.recv(None).await.is_err());
    assert!(second.recv(None).await.is_err());
    assert_eq!(server.pool_stats().cleared, 1, "the second failure is of the same generation");
    // Its generation is gone: it is closed, not kept.
    drop(third);
    assert_eq!(server.pool_stats().idle, 0);
}

#[tokio::test]
async fn idle_connections_above_the_minimum_are_closed_and_the_others_asked() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |options| {
        options.pool.min_size = 1;
        options.pool.refresh_requirement = Duration::from_millis(1);
        options.heartbeat = Duration::from_millis(30);
    })
    .await;
    let server = primary(&set).await;
    eventually("the minimum is made without a caller", || server.pool_stats().idle == 1).await;
    let held: Vec<_> = [server.checkout(None).await.unwrap(), server.checkout(None).await.unwrap()].into();
    drop(held);
    eventually("one is left", || server.pool_stats().idle == 1 && server.pool_stats().in_use == 0).await;
    let asked = fake.shared.plain_hellos.load(SeqCst);
    eventually("it is asked whether it lives", || fake.shared.plain_hellos.load(SeqCst) > asked + 2).await;
    echo(&mut server.checkout(None).await.unwrap(), 5).await.unwrap();
}

#[tokio::test]
async fn a_pool_that_nobody_uses_is_emptied() {
    let fake = FakeServer::start().await;
    let (_topology, set) = topology(&fake, |options| {
        options.pool.min_size = 1;
        options.pool.host_timeout = Duration::from_millis(1);
        options.heartbeat = Duration::from_millis(30);
    })
    .await;
    let server = primary(&set).await;
    drop(server.checkout(None).await.unwrap());
    eventually("it is empty", || server.pool_stats().idle == 0).await;
}
