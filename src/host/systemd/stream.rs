//! All that a stream of bytes from the bus is put through, without a bus: for the fuzz target.

use std::{
    io::Cursor,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use zbus::connection::socket::ReadHalf as _;

use super::{
    properties::{dependencies, job, merge},
    signals::{self, Said},
    wire::{Ear, Reader},
};
use crate::checks::kubelet::{MAX_DEPENDENCIES, Unit};

/// What was heard.
#[derive(Debug, Default)]
pub struct Heard {
    /// How many messages zbus made of it.
    pub messages: usize,
    /// How many of them counted.
    pub counted: usize,
    /// The unit after all changes.
    pub unit: Unit,
}

/// Reads the stream to its end, or to the first bytes that are no message. `owner` speaks for systemd.
pub fn heard(bytes: &[u8], owner: &str) -> Heard {
    let ear = Ear {
        owner: Mutex::new(Some(owner.to_owned())),
        ..Ear::default()
    };
    let mut reader = Reader::new(Cursor::new(bytes.to_vec()), Arc::new(ear));
    let mut heard = Heard::default();
    loop {
        let (mut bytes, mut fds) = (Vec::new(), Vec::new());
        let next = pin!(reader.receive_message(0, &mut bytes, &mut fds));
        // A cursor is always ready.
        let Poll::Ready(Ok(message)) = next.poll(&mut Context::from_waker(Waker::noop())) else {
            return heard;
        };
        heard.messages += 1;
        let Ok(said) = signals::read(&message, Some(owner)) else {
            continue;
        };
        heard.counted += 1;
        if let Said::Changed(_, properties) = said {
            merge(&mut heard.unit, &properties);
            heard.unit.dependencies = dependencies(&properties);
            assert!(heard.unit.dependencies.len() <= MAX_DEPENDENCIES);
            let _ = properties.get("Job").and_then(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use zbus::{Message, Variant};

    use super::*;
    use crate::host::systemd::{PROPERTIES, UNIT};

    #[test]
    fn what_systemd_says_is_heard_and_nothing_of_another_sender() {
        let signal = |sender: &str, state: &'static str| {
            let state = Variant::from(state).try_to_owned().unwrap();
            let changed = HashMap::from([("ActiveState".to_owned(), state)]);
            let path = "/org/freedesktop/systemd1/unit/kubelet_2eservice";
            let message = Message::signal(path, PROPERTIES, "PropertiesChanged").sender(sender);
            let message = message.build(&(UNIT, changed, Vec::<String>::new()));
            message.unwrap().data().to_vec()
        };
        let sent = [
            signal(":1.11", "failed"),
            signal(":1.1", "active"),
            signal(":1.11", "failed"),
            b"lost".to_vec(),
        ];
        let heard = heard(&sent.concat(), ":1.1");
        assert_eq!((heard.messages, heard.counted), (1, 1));
        assert_eq!(heard.unit.active_state, "active");
    }
}
