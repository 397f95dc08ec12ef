//! What is asked of the API server, set going: looking for an identity, its connection, the watch, an apply.

use std::path::PathBuf;

use http::Uri;
use tokio::sync::mpsc;
use tracing::warn;

use super::{Agent, Event};
use crate::{
    checks::{
        Reading,
        lease::{Server, Sockets, Unread},
    },
    cluster::{
        api::{Api, ApiError},
        identity::{self, Sources},
        publisher::Apply,
        watch::{self, NodeEvent, WatchEvent},
    },
    host::sockets::SocketTable,
};

/// Where the URL of a kubeconfig points.
fn server(url: &str) -> Option<Server> {
    let url: Uri = url.parse().ok()?;
    let host = url.host()?.trim_matches(['[', ']']);
    let default = if url.scheme_str() == Some("http") {
        80
    } else {
        443
    };
    Some(Server {
        address: host.parse().ok(),
        port: url.port_u16().unwrap_or(default),
    })
}

impl Agent {
    pub(super) fn find_identity(&mut self) {
        let sources = Sources {
            explicit: self.settings.kubernetes.kubeconfig.clone(),
            default: PathBuf::from(identity::DEFAULT_KUBECONFIG),
            root: self.outside.root.clone(),
            kubelets: self.settings.kubernetes.kubelet_identity,
            helper: self.outside.helper.clone(),
            keeps_note: true,
            timer: Some(self.alarm.coarse()),
        };
        let known = self.connection.clone();
        let (connections, sender) = (self.connections.0.clone(), self.sender.clone());
        self.tasks.spawn(async move {
            let (identity, terms) = match identity::look(sources, known).await {
                Ok(found) => {
                    let is_new = found.connection.is_some();
                    if let Some(connection) = found.connection {
                        connections.send((connection, found.mark)).ok();
                    }
                    (is_new.then_some(Ok(found.identity)), Some(found.terms))
                }
                Err(e) => (Some(Err(e)), None),
            };
            let events = [identity.map(Event::Identity), terms.map(Event::Terms)];
            for event in events.into_iter().flatten() {
                sender.send(event).await.ok();
            }
        });
    }

    pub(super) fn connect(&mut self, node: &str) {
        while let Ok(connection) = self.connections.1.try_recv() {
            self.connection = Some(connection);
        }
        self.api = self
            .connection
            .clone()
            .map(|(connection, _)| Api::new(connection, node));
    }

    pub(super) fn disconnect(&mut self) {
        self.stop_watching_node();
        let requests = [self.applying.take(), self.reading.take()];
        let besides = self.besides.drain(..);
        for request in requests.into_iter().flatten().chain(besides) {
            request.abort();
        }
        if let Some((connection, _)) = &self.connection {
            connection.abort();
        }
    }

    pub(super) fn read_node(&mut self) {
        let Some(api) = self.api.clone() else {
            return;
        };
        let task = self.spawn(async move {
            let read = api.list().await;
            Event::Read(read.map(|(node, _)| node.map_or(NodeEvent::Missing, NodeEvent::Seen)))
        });
        self.reading = Some(task);
    }

    /// On suspicion, and only while the API server does what else it is asked: a failure is for the check that asked, which
    /// waits, and says nothing of the way there.
    pub(super) fn read_lease(&mut self, id: &'static str) {
        let Some(api) = self.api.clone() else {
            let answer = Event::Answered(id, Reading::Lease(Err(Unread::Failed)));
            self.known.push_back(answer);
            return;
        };
        let said = self.lease_refused.clone();
        self.spawn(async move {
            let read = api.lease().await.map_err(|error| match error {
                ApiError::Forbidden(_) => {
                    if said.set(()).is_ok() {
                        warn!(%error, "the kubelet's Lease cannot be read: whether its connection to the API server stalls is not watched");
                    }
                    Unread::Refused
                }
                _ => Unread::Failed,
            });
            Event::Answered(id, Reading::Lease(read))
        });
    }

    /// Root's connections to the API server that we speak to; `None` if the kernel does not list them, which is said once.
    pub(super) fn sockets(&mut self) -> Option<Sockets> {
        let (connection, _) = self.connection.as_ref()?;
        let server = server(&connection.access().server)?;
        let mut sockets = Sockets::default();
        let listed = match &mut self.socket_table {
            Some(table) => table.of_root(server, |socket| sockets.count(socket)),
            None => SocketTable::open().and_then(|table| {
                let table = self.socket_table.insert(table);
                table.of_root(server, |socket| sockets.count(socket))
            }),
        };
        match listed {
            Ok(()) => Some(sockets),
            Err(error) => {
                if !std::mem::replace(&mut self.sockets_refused, true) {
                    warn!(%error, "the kernel does not list TCP sockets: a stalled connection of the kubelet's is seen later");
                }
                None
            }
        }
    }

    pub(super) fn watch_node(&mut self, number: u64, version: Option<String>) {
        self.stop_watching_node();
        let Some(api) = self.api.clone() else {
            return;
        };
        let (sender, mut told) = mpsc::channel(1);
        let forward = self.sender.clone();
        self.node_watch = Some(self.tasks.spawn(async move {
            let forwarding = async {
                while let Some(told) = told.recv().await {
                    let event = match told {
                        WatchEvent::Opened => Event::WatchOpened(number),
                        WatchEvent::Node(event) => Event::Node(event),
                        WatchEvent::Ended(end) => Event::WatchEnded(number, end),
                    };
                    if forward.send(event).await.is_err() {
                        return;
                    }
                }
            };
            tokio::join!(watch::watch(api, version, sender), forwarding);
        }));
    }

    fn stop_watching_node(&mut self) {
        if let Some(watch) = self.node_watch.take() {
            watch.abort();
        }
    }

    /// What the API server's answers say of its clock.
    pub(super) fn learn_the_time(&mut self) {
        if let Some(api) = &self.api {
            let time = &mut self.state.link.time;
            api.dated_answers().drain(|answer| time.learn(&answer));
        }
    }

    pub(super) fn apply(&mut self, apply: Apply) {
        let Some(api) = self.api.clone() else {
            let lost = ApiError::Network("the connection was given up".to_owned());
            self.known
                .push_back(Event::Applied(apply.attempt, Err(lost)));
            return;
        };
        let task = self.spawn(async move {
            let result = api.apply(&apply).await;
            Event::Applied(apply.attempt, result)
        });
        self.applying = Some(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_where_the_url_points() {
        for (url, address, port) in [
            ("https://10.0.0.1:6443", Some("10.0.0.1"), 6443),
            ("https://[fd00::1]/prefix", Some("fd00::1"), 443),
            ("https://api.example.org", None, 443),
        ] {
            let address = address.map(|address| address.parse().unwrap());
            assert_eq!(server(url), Some(Server { address, port }), "{url}");
        }
        assert_eq!(server("/"), None);
    }
}
