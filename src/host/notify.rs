//! Notifications for systemd (`sd_notify(3)`).

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use sd_notify::NotifyState;

/// Notifications that wait; more are dropped.
const QUEUE: usize = 4;

/// Sends notifications from a thread of its own: a write to systemd's socket blocks while PID 1 hangs.
#[derive(Debug)]
pub struct Notifier(SyncSender<NotifyState<'static>>);

impl Notifier {
    pub fn new() -> Self {
        let (sender, states) = sync_channel(QUEUE);
        thread::spawn(move || {
            for state in states {
                // Fails without systemd.
                sd_notify::notify(&[state]).ok();
            }
        });
        Self(sender)
    }

    pub fn notify(&self, state: NotifyState<'static>) {
        self.0.try_send(state).ok();
    }
}
