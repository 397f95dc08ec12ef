//! Which socket is the kubelet's runtime's, as far as the agent knows. The helper, which asks there, finds it out by itself.

use std::{path::PathBuf, time::Duration};

use super::Runtime;
use crate::{checks::Unasked, helper::protocol::RuntimeAnswer};

impl Runtime {
    pub(super) fn learn_socket(&mut self, socket: Option<&PathBuf>) {
        if self.kubelets.as_ref() == socket {
            return;
        }
        self.kubelets = socket.cloned();
        if self.last.as_ref().map(|last| &last.socket) != socket && self.settings.socket.is_none() {
            self.forget_answers();
            self.hasten(Duration::ZERO);
        }
    }

    /// A helper that was restarted while no kubelet runs does not know the kubelet's socket: then it is another runtime's answer.
    pub(super) fn is_of_another(&self, answer: &RuntimeAnswer) -> bool {
        answer.is_guess && self.socket().is_some_and(|socket| socket != answer.socket)
    }

    /// The socket that is asked; `None`: the well-known ones.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        self.settings
            .socket
            .clone()
            .or_else(|| self.kubelets.clone())
    }

    pub(super) fn is_guess(&self) -> bool {
        self.settings.socket.is_none() && self.kubelets.is_none()
    }
}

/// What is made of such an answer.
pub(super) fn not_known() -> Unasked {
    Unasked {
        is_away: false,
        why:
            "the helper was restarted while no kubelet runs, and does not know the kubelet's socket"
                .to_owned(),
    }
}
