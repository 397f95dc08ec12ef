//! What systemd is asked: calls with an answer that is waited for, and questions beside the signals that are not.

use tracing::debug;
use zbus::{
    Connection, Message, MessageStream, OwnedObjectPath, export::futures_core::Stream,
    zvariant::DynamicType,
};

use super::{
    BusEvent, MANAGER, MANAGER_PATH, SYSTEMD, Session,
    properties::{get, job_type, text},
};
use crate::checks::kubelet::{JobKind, Sign};

impl Session {
    /// Asks without waiting: the signals that come meanwhile matter more.
    pub(super) fn ask_job_type(&mut self, index: usize, id: u32, path: OwnedObjectPath) {
        let (connection, events) = (self.connection.clone(), self.events.clone());
        let event = self.units[index].event(Sign::Job(id, JobKind::Unasked));
        self.questions.spawn(async move {
            match job_type(&connection, path).await {
                Ok(kind) => {
                    let sign = Sign::Job(id, kind);
                    let event = match event {
                        BusEvent::Beside(unit, _) => BusEvent::Beside(unit, sign),
                        _ => BusEvent::Sign(sign),
                    };
                    events.send(event).await.ok();
                }
                Err(e) => debug!(job = id, error = %e, "a job's type could not be read"),
            }
        });
    }

    /// systemd announces no change of this property; the jobs of [`SHUTDOWN`] do.
    pub(super) fn ask_system_state(&mut self) {
        let (connection, events) = (self.connection.clone(), self.events.clone());
        self.questions.spawn(async move {
            match get(&connection, MANAGER_PATH, MANAGER, "SystemState").await {
                Ok(state) => {
                    let stopping = text(&state) == "stopping";
                    events.send(BusEvent::ShuttingDown(stopping)).await.ok();
                }
                Err(e) => debug!(error = %e, "the system's state could not be read"),
            }
        });
    }
}

pub(super) async fn next(messages: &mut MessageStream) -> Option<zbus::Result<Message>> {
    std::future::poll_fn(|context| Stream::poll_next(std::pin::Pin::new(&mut *messages), context))
        .await
}

pub(super) async fn call<B>(
    connection: &Connection,
    method: &'static str,
    body: &B,
) -> zbus::Result<Message>
where
    B: serde::Serialize + DynamicType,
{
    connection
        .call_method(Some(SYSTEMD), MANAGER_PATH, Some(MANAGER), method, body)
        .await
}
