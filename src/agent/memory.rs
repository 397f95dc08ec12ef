//! Looks at the host's memory for the check: here and now, for none of these reads waits for anything.

use super::{Agent, event::Event};
use crate::checks::{Reading, memory::Depth};

impl Agent {
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
