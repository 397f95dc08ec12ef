//! What systemd is asked beside its signals: nobody waits for these answers.

use std::collections::HashMap;

use tracing::debug;
use zbus::{Message, OwnedObjectPath, OwnedVariant, message::Type};

use super::{
    BusEvent, MANAGER, MANAGER_PATH, SERVICE, Session, UNIT,
    properties::{job_type, text},
};
use crate::{
    checks::kubelet::{JobKind, Sign},
    host::loaded,
};

/// Questions that are open at a time: systemd has one job of a unit at a time, and a dozen units are followed.
const MAX_QUESTIONS: usize = 64;

/// A question whose answer comes among the signals.
#[derive(Debug)]
pub(super) struct Awaited {
    number: u32,
    unit: String,
    interface: &'static str,
}

impl Session {
    fn spawn(&mut self, question: impl Future<Output = ()> + Send + 'static) {
        while self.questions.try_join_next().is_some() {}
        if self.questions.len() < MAX_QUESTIONS {
            self.questions.spawn(question);
        }
    }

    /// Asks without waiting: the signals that come meanwhile matter more.
    pub(super) fn ask_job_type(&mut self, index: usize, id: u32, path: OwnedObjectPath) {
        let (systemd, events) = (self.bus.systemd(), self.events.clone());
        let event = self.units[index].event(Sign::Job(id, JobKind::Unasked));
        self.spawn(async move {
            match job_type(&systemd, &path).await {
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

    /// systemd announces no change of this property; the jobs of [`super::SHUTDOWN`] do.
    pub(super) fn ask_system_state(&mut self) {
        let (systemd, events) = (self.bus.systemd(), self.events.clone());
        self.spawn(async move {
            match systemd.get(MANAGER_PATH, MANAGER, "SystemState").await {
                Ok(state) => {
                    let stopping = text(&state) == "stopping";
                    events.send(BusEvent::ShuttingDown(stopping)).await.ok();
                }
                Err(e) => debug!(error = %e, "the system's state could not be read"),
            }
        });
    }

    /// Not waited for: an end of the process that comes meanwhile matters more.
    pub(super) fn ask_what_is_loaded(&mut self, path: OwnedObjectPath) {
        let (systemd, events) = (self.bus.systemd(), self.events.clone());
        self.spawn(async move {
            match loaded::read(&systemd, &path).await {
                Ok(loaded) => {
                    events.send(BusEvent::Loaded(Box::new(loaded))).await.ok();
                }
                Err(e) => debug!(error = %e, "what systemd has loaded could not be read"),
            }
        });
    }

    /// Asks for the units' states so that the answers stand behind whatever systemd has said before them: who has them has heard it all.
    pub(super) async fn ask_in_order(&mut self) -> zbus::Result<()> {
        self.awaited.clear();
        for index in 0..self.units.len() {
            let (unit, path) = (
                self.units[index].name.clone(),
                self.units[index].path.clone(),
            );
            for interface in [UNIT, SERVICE] {
                let number = self.bus.ask(&path, interface).await?;
                let unit = unit.clone();
                self.awaited.push(Awaited {
                    number,
                    unit,
                    interface,
                });
            }
        }
        Ok(())
    }

    /// Takes in an answer that came among the signals, if it is one to [`Session::ask_in_order`].
    pub(super) async fn answered(&mut self, message: &Message) {
        let number = message
            .header()
            .reply_serial()
            .map(std::num::NonZeroU32::get);
        let is_it = |one: &Awaited| Some(one.number) == number;
        let Some(at) = self.awaited.iter().position(is_it) else {
            return;
        };
        let Awaited {
            unit, interface, ..
        } = self.awaited.swap_remove(at);
        let body = message.body();
        let properties = body.deserialize::<HashMap<String, OwnedVariant>>();
        if let Some(index) = self.named(&unit)
            && message.message_type() == Type::MethodReturn
            && let Ok(properties) = properties
        {
            // A job whose end got lost must not excuse a later death; one that is open is in the answer.
            if interface == UNIT {
                self.tell(index, Sign::JobsUntold).await;
            }
            self.read(index, interface, &properties).await;
            if interface == SERVICE {
                self.tell_unit(index).await;
            }
        }
    }
}
