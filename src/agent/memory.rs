//! Looks at the host's memory for the check: here and now, for none of these reads waits for anything.

use tokio::sync::mpsc;
use tracing::debug;

use super::{Agent, event::Event};
use crate::{
    checks::{Reading, memory::Depth},
    host::stall_triggers::StallTriggers,
};

impl Agent {
    /// Has the kernel call when tasks begin to wait for memory. Where it does not, the check's own looks have to do.
    pub(super) fn watch_stalls(&mut self) {
        let armed = StallTriggers::arm(&self.outside.root);
        self.state.stall_triggers = Some(armed.is_ok());
        match armed {
            Ok(triggers) => {
                let (sender, calls) = mpsc::channel(1);
                self.tasks.spawn(triggers.follow(sender));
                self.forward(calls, |()| Event::Observed(Reading::MemoryStalls));
            }
            Err(error) => {
                debug!(%error, "the kernel does not call when tasks wait for memory; it is looked at each second all the same");
            }
        }
    }

    pub(super) fn look_at_memory(&mut self, id: &'static str, depth: Depth) {
        let at = self.outside.clock.now().uptime;
        let kubelet = self.watched.as_ref().map(|watched| &watched.process);
        let runtime = self.runtime.as_ref().map(|watched| &watched.process);
        self.memory.follow(kubelet, runtime);
        let look = self.memory.look(depth, at);
        let answer = Event::Answered(id, Reading::Memory(look));
        self.known.push_back(answer);
    }
}
