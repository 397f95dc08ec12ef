//! Sets the requests going that are not conditions.

use super::{
    Agent,
    event::{Besides, Event},
};
use crate::cluster::api::{ApiError, EventTask, TaintTry};

impl Agent {
    pub(super) fn taint(&mut self, task: TaintTry) {
        let api = self.api.clone();
        let now = self.state.link.time.of(self.outside.clock.now()).wall;
        let sending = self.spawn(async move {
            let result = match api {
                Some(api) => api.taint(&task, now).await,
                None => Err(given_up()),
            };
            Event::Besides(Besides::Tainted(task.attempt, result))
        });
        self.keep(sending);
    }

    pub(super) fn tell_event(&mut self, task: Box<EventTask>) {
        let api = self.api.clone();
        let sending = self.spawn(async move {
            let result = match api {
                Some(api) => api.tell(&task).await,
                None => Err(given_up()),
            };
            Event::Besides(Besides::Told(task, result))
        });
        self.keep(sending);
    }

    fn keep(&mut self, sending: tokio::task::AbortHandle) {
        self.besides.retain(|task| !task.is_finished());
        self.besides.push(sending);
    }
}

fn given_up() -> ApiError {
    ApiError::Network("the connection was given up".to_owned())
}
