//! A connection to the system bus on which systemd alone is heard.
//!
//! A bus delivers a signal that is addressed to us whatever our match rules say, from whoever sends it. So each message's sender is
//! compared with the connection that the bus itself names as systemd's. The bus's own signals carry a sender that it gives nobody.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    pin::pin,
    sync::{Arc, PoisonError},
    time::Duration,
};

use zbus::{
    Connection, DynamicType, Error, Message, MessageStream, OwnedObjectPath, OwnedVariant,
    export::futures_core::Stream,
};

use super::{
    MANAGER, MANAGER_PATH, PROPERTIES, SYSTEMD,
    dropped::drop_one,
    rules::hear_of_owners,
    signals::{BUS, BUS_PATH, Said, read},
    wire::{self, Ear},
};

/// Messages that wait to be looked at: with [`wire::MAX_MESSAGE`] the bound of what other senders can have us hold.
const MAX_UNREAD: NonZeroUsize = NonZeroUsize::new(4).expect("it is not 0");
/// systemd's words that wait while an answer is waited for.
const MAX_WAITING: usize = 1024;

/// Asks systemd, and nobody else.
#[derive(Debug, Clone)]
pub(in crate::host) struct Systemd {
    connection: Connection,
    /// systemd's unique name: the bus lets its owner alone answer what is sent there.
    owner: Option<String>,
}

impl Systemd {
    /// On a connection of its own.
    ///
    /// # Errors
    /// When there is no bus, or no systemd on it.
    pub(in crate::host) async fn connect(call_timeout: Duration) -> zbus::Result<Self> {
        let ear = Arc::new(Ear::default());
        let connection = wire::builder(ear)
            .await?
            .max_queued(MAX_UNREAD)
            .method_timeout(call_timeout)
            .build()
            .await?;
        let owner = Some(owner(&connection).await?);
        Ok(Self { connection, owner })
    }

    /// Calls a method of systemd's.
    ///
    /// # Errors
    /// The bus's, and an answer that is not systemd's.
    pub(in crate::host) async fn call<B>(
        &self,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) -> zbus::Result<Message>
    where
        B: serde::Serialize + DynamicType,
    {
        let owner = self.owner.as_deref();
        let owner = owner.ok_or_else(|| Error::Failure("systemd is not on the bus".to_owned()))?;
        let reply = self
            .connection
            .call_method(Some(owner), path, Some(interface), method, body);
        from(owner, reply.await?)
    }

    pub(super) async fn manager<B>(&self, method: &str, body: &B) -> zbus::Result<Message>
    where
        B: serde::Serialize + DynamicType,
    {
        self.call(MANAGER_PATH, MANAGER, method, body).await
    }

    pub(super) async fn get(
        &self,
        path: &str,
        interface: &str,
        property: &str,
    ) -> zbus::Result<OwnedVariant> {
        let body = (interface, property);
        let reply = self.call(path, PROPERTIES, "Get", &body).await?;
        reply.body().deserialize()
    }
}

fn from(sender: &str, reply: Message) -> zbus::Result<Message> {
    let is = reply.header().sender().map(ToString::to_string);
    if is.as_deref() == Some(sender) {
        return Ok(reply);
    }
    Err(Error::Failure(format!(
        "an answer of {} in place of {sender}",
        is.as_deref().unwrap_or("nobody")
    )))
}

/// Whom the bus has as systemd.
async fn owner(connection: &Connection) -> zbus::Result<String> {
    let reply = connection.call_method(Some(BUS), BUS_PATH, Some(BUS), "GetNameOwner", &(SYSTEMD));
    from(BUS, reply.await?)?.body().deserialize()
}

/// The same for a connection that listens.
#[derive(Debug)]
pub(super) struct Bus {
    systemd: Systemd,
    messages: MessageStream,
    /// What systemd said while it was asked something.
    waiting: VecDeque<(Said, Message)>,
    ear: Arc<Ear>,
    /// Whether something of another sender was dropped since that was asked last.
    has_dropped: bool,
}

impl Bus {
    pub(super) async fn connect(call_timeout: Duration) -> zbus::Result<Self> {
        let ear = Arc::new(Ear::default());
        let connection = wire::builder(Arc::clone(&ear))
            .await?
            .max_queued(MAX_UNREAD)
            .method_timeout(call_timeout)
            .build()
            .await?;
        let mut bus = Self {
            messages: MessageStream::from(&connection),
            systemd: Systemd {
                connection: connection.clone(),
                owner: None,
            },
            waiting: VecDeque::new(),
            ear,
            has_dropped: false,
        };
        // From now on a change of the owner is heard, so that none gets lost between the two.
        bus.during(hear_of_owners(&connection)).await?;
        let owner = bus.during(owner(&connection)).await?;
        bus.systemd.owner.get_or_insert(owner);
        bus.hear_owner_alone();
        Ok(bus)
    }

    fn hear_owner_alone(&self) {
        let mut owner = self
            .ear
            .owner
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        owner.clone_from(&self.systemd.owner);
    }

    pub(super) fn systemd(&self) -> Systemd {
        self.systemd.clone()
    }

    pub(super) fn connection(&self) -> Connection {
        self.systemd.connection.clone()
    }

    /// Whether something of another sender was dropped since the last time.
    pub(super) fn take_has_dropped(&mut self) -> bool {
        std::mem::take(&mut self.has_dropped)
    }

    /// What systemd says next, and the message; `None` if other senders alone were heard.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) async fn next(&mut self) -> zbus::Result<Option<(Said, Message)>> {
        if let Some(said) = self.waiting.pop_front() {
            return Ok(Some(said));
        }
        let ear = Arc::clone(&self.ear);
        tokio::select! {
            biased;
            message = receive(&mut self.messages) => Ok(self.judge(message?)),
            () = ear.dropped.notified() => {
                self.has_dropped = true;
                Ok(None)
            }
        }
    }

    /// Waits for an answer, and reads on meanwhile: what is not read stands before the answer.
    pub(super) async fn during<T>(
        &mut self,
        answer: impl Future<Output = zbus::Result<T>>,
    ) -> zbus::Result<T> {
        let mut answer = pin!(answer);
        loop {
            let message = tokio::select! {
                biased;
                answer = &mut answer => return answer,
                message = receive(&mut self.messages) => message?,
            };
            if let Some(said) = self.judge(message) {
                if self.waiting.len() >= MAX_WAITING {
                    return Err(Error::Failure("systemd says more than is read".to_owned()));
                }
                self.waiting.push_back(said);
            }
        }
    }

    /// Puts a question whose answer comes among the signals, in systemd's order; its number.
    pub(super) async fn ask(
        &mut self,
        path: &OwnedObjectPath,
        interface: &str,
    ) -> zbus::Result<u32> {
        let owner = self.systemd.owner.clone().unwrap_or_default();
        let message = Message::method_call(path.as_str(), "GetAll")
            .interface(PROPERTIES)
            .destination(owner.as_str())
            .build(&(interface))?;
        let number = message.primary_header().serial_num().get();
        let connection = self.connection();
        self.during(async { connection.send(&message).await })
            .await?;
        Ok(number)
    }

    fn judge(&mut self, message: Message) -> Option<(Said, Message)> {
        match read(&message, self.systemd.owner.as_deref()) {
            Ok(Said::Nothing) => None,
            Ok(said) => {
                if let Said::Owner(owner) = &said {
                    self.systemd.owner.clone_from(owner);
                    self.hear_owner_alone();
                }
                Some((said, message))
            }
            Err(cause) => {
                drop_one(cause);
                self.has_dropped |= cause.is_foreign();
                None
            }
        }
    }
}

async fn receive(messages: &mut MessageStream) -> zbus::Result<Message> {
    let next = std::future::poll_fn(|context| {
        Stream::poll_next(std::pin::Pin::new(&mut *messages), context)
    });
    let ended = || Error::Failure("the bus closed the connection".to_owned());
    next.await.ok_or_else(ended)?
}
