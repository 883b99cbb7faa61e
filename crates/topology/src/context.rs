//! What all sets and servers of one router share.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connect::Connector;
use crate::options::TopologyOptions;
use crate::registry::HostsChanged;

/// A reader of host changes that is this far behind is told that it missed some.
const HOST_CHANGES_KEPT: usize = 64;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) options: TopologyOptions,
    pub(crate) connector: Connector,
    pub(crate) hosts_changed: broadcast::Sender<HostsChanged>,
    pub(crate) stop: CancellationToken,
    tasks: TaskTracker,
    runtime: Handle,
}

impl Context {
    pub(crate) fn new(options: TopologyOptions) -> Context {
        let connector = Connector::new(options.handshake.clone(), options.connect_timeout);
        Context {
            options,
            connector,
            hosts_changed: broadcast::Sender::new(HOST_CHANGES_KEPT),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            // Connections are given back, and replaced, wherever they are dropped: also outside of the runtime.
            runtime: Handle::current(),
        }
    }

    /// Runs a task until it ends or the router does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn_on(
            async move {
                stop.run_until_cancelled(task).await;
            },
            &self.runtime,
        );
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
