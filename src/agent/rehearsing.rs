//! The rehearsal: once, in calm, the way of an emergency is gone for show, so that its code and its buffers are in memory. With
//! the agent's pages locked they stay there.
//!
//! It begins when the API server has taken the first apply of this life: it delays none, and without an identity, with an API
//! server that is away or that refuses us, there is none. It is not repeated, whatever comes of it.

use tracing::info;

use super::{Agent, event::Effect, state::State};
use crate::{
    checks::kernel::sift::Sifter,
    clock::{Clock, Now},
    cluster::{
        api::{Api, ApiError, EventTask},
        connection::Connection,
        events::Notice,
        publisher::{Apply, Publisher},
    },
    health::news::Pace,
    host::{journal::Kind, own},
};

/// What the kernel says of a kill for memory.
const KILL: [&[u8]; 2] = [
    b"6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/rehearsal,task_memcg=/rehearsal,task=rehearsal,pid=0,uid=0\n",
    b"3,2,1,-;Memory cgroup out of memory: Killed process 0 (rehearsal) total-vm:0kB, anon-rss:0kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:0kB oom_score_adj:0\n",
];

impl State {
    /// An apply was taken.
    pub(super) fn rehearse_once(&mut self, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.is_rehearsed, true) {
            return;
        }
        let published = self.publisher.as_ref().and_then(Publisher::published);
        if let Some(apply) = published {
            effects.push(Effect::Rehearse(Box::new(apply.clone())));
        }
    }
}

impl Agent {
    pub(super) fn rehearse(&mut self, apply: Apply) {
        let Some((connection, _)) = self.connection.clone() else {
            return;
        };
        let (node, clock) = (self.state.node_name(), self.outside.clock);
        self.tasks.spawn(async move {
            read_a_kill();
            let began = clock.now();
            let result = show(&connection, &node, &apply, began).await;
            say(result, began, clock);
        });
    }
}

fn read_a_kill() {
    let mut sifter = Sifter::default();
    for record in KILL {
        sifter.take(record, &mut |_| {});
    }
}

/// On a connection of its own, with a handshake that no earlier one shortens.
async fn show(
    connection: &Connection,
    node: &str,
    apply: &Apply,
    now: Now,
) -> Result<(), ApiError> {
    let lost = |why: String| ApiError::Network(why);
    let beside = connection
        .beside()
        .map_err(|error| lost(error.to_string()))?;
    let api = Api::new(beside, node);
    api.rehearse(apply).await?;
    api.rehearse_event(&event(node, apply, now)).await
}

fn event(node: &str, apply: &Apply, now: Now) -> EventTask {
    EventTask {
        attempt: 0,
        name: format!("{node}.rehearsal"),
        uid: apply.uid.clone(),
        notice: Notice {
            warning: false,
            reason: "Rehearsal".to_owned(),
            action: "Rehearse",
            note: "never kept".to_owned(),
            about: String::new(),
            pace: Pace::Ordinary,
        },
        first: now.wall,
        count: 1,
        last: now.wall,
        exists: false,
    }
}

fn say(result: Result<(), ApiError>, began: Now, clock: Clock) {
    let process = own::read().unwrap_or_default();
    let (resident, locked) = (process.resident_bytes / 1024, process.locked_bytes / 1024);
    let took = clock.now().uptime.saturating_sub(began.uptime).as_millis();
    let how = match result {
        Ok(()) => "the way of an emergency was rehearsed".to_owned(),
        Err(error) => format!("the way of an emergency was rehearsed in part: {error}"),
    };
    info!(
        message_id = Kind::LockedPages.id(),
        took_ms = took,
        major_faults = process.major_faults,
        "{how}; {resident} KiB are in memory, of {locked} KiB that stay there once touched"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::kernel::event::KernelEvent;

    #[test]
    fn the_kill_that_is_read_is_one() {
        let (mut sifter, mut kills) = (Sifter::default(), 0);
        for record in KILL {
            sifter.take(record, &mut |event| {
                assert!(matches!(event, KernelEvent::OomKill(_)), "{event:?}");
                kills += 1;
            });
        }
        assert_eq!(kills, 1);
    }
}
