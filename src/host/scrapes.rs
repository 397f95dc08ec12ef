//! The metrics' Unix socket: who connects is asked what he wants, the loop renders it, and he gets it or is dropped.
//!
//! Everything is bounded: connections at a time, the request's bytes, a deadline for each client, and how soon his place
//! is free again. Nothing here runs while nobody connects.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::Path,
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::{Semaphore, mpsc, oneshot},
    time::{sleep, timeout},
};

use crate::{
    host::files::Root,
    metrics::{
        Format,
        http::{self, Asked, MAX_HEAD_BYTES, Refusal},
    },
};

/// Clients at a time; the next ones wait in the socket's queue. Each may hold an exposition.
pub const MAX_CLIENTS: usize = 4;
/// How long one client may take, from his first byte to our last.
pub const CLIENT_DEADLINE: Duration = Duration::from_secs(5);
/// A client's place is free again only then: who asks in a tight loop gets 40 answers a second, and no more.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to wait if connections cannot be had (no descriptors are left).
const RETRY: Duration = Duration::from_secs(1);

/// Somebody wants the metrics.
#[derive(Debug)]
pub struct Scrape {
    /// How they are to be spelled.
    pub format: Format,
    answer: oneshot::Sender<String>,
}

impl Scrape {
    /// Here they are; it is no matter if he has gone away.
    pub fn answer(self, text: String) {
        self.answer.send(text).ok();
    }
}

/// Makes the socket, with `mode`. One that an earlier life has left is replaced, nothing else is.
///
/// # Errors
/// In a sentence, why there is none.
pub fn listen(root: &Root, path: &Path, mode: u32) -> Result<UnixListener, String> {
    let place = root.join(path);
    let failed = |what: &str, error: std::io::Error| {
        format!("{what} the metrics' socket {}: {error}", path.display())
    };
    match fs::symlink_metadata(&place) {
        Ok(meta) if meta.file_type().is_socket() => {
            root.remove(path).map_err(|e| e.to_string())?;
        }
        Ok(_) => {
            return Err(format!(
                "the metrics' socket {}: there is a file of that name that is no socket; remove it or choose another name",
                path.display()
            ));
        }
        Err(_) => {}
    }
    // By the umask others may not write to it, and to connect is to write: nobody slips in before the mode is set.
    let listener = UnixListener::bind(&place).map_err(|e| failed("make", e))?;
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(&place, permissions).map_err(|e| failed("set the mode of", e))?;
    Ok(listener)
}

/// Serves whoever connects, for ever.
pub async fn serve(listener: UnixListener, scrapes: mpsc::Sender<Scrape>) {
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        let scrapes = scrapes.clone();
        tokio::spawn(async move {
            timeout(CLIENT_DEADLINE, exchange(stream, &scrapes))
                .await
                .ok();
            sleep(PAUSE).await;
            drop(place);
        });
    }
}

async fn exchange(mut stream: UnixStream, scrapes: &mpsc::Sender<Scrape>) {
    let refusal = match read(&mut stream).await {
        None => return,
        Some(Asked::Metrics { format, head_only }) => match ask(scrapes, format).await {
            Some(text) => {
                let head = http::head(format, text.len());
                let body = if head_only { "" } else { &text };
                for part in [&head, body] {
                    if stream.write_all(part.as_bytes()).await.is_err() {
                        return;
                    }
                }
                return;
            }
            None => Refusal::Unavailable,
        },
        Some(Asked::Refused(refusal)) => refusal,
        Some(Asked::More) => Refusal::BadRequest,
    };
    let answer = http::refusal(refusal);
    stream.write_all(answer.as_bytes()).await.ok();
}

/// What he asks for, once he has said it; `None`: he hung up before.
async fn read(stream: &mut UnixStream) -> Option<Asked> {
    let mut head = Vec::with_capacity(MAX_HEAD_BYTES);
    loop {
        let left = MAX_HEAD_BYTES - head.len();
        let bytes = (&mut *stream).take(u64::try_from(left).ok()?);
        let mut bytes = bytes;
        if bytes.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
        match http::read(&head) {
            Asked::More => {}
            asked => return Some(asked),
        }
    }
}

async fn ask(scrapes: &mpsc::Sender<Scrape>, format: Format) -> Option<String> {
    let (answer, answers) = oneshot::channel();
    scrapes.send(Scrape { format, answer }).await.ok()?;
    answers.await.ok()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests are the clients")]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::clock::Clock;

    const TEXT: &str = "a 1\n# EOF\n";

    /// A socket whose loop answers with `text`.
    fn served(text: &'static str) -> (TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let listener = listen(&root, Path::new("/m.sock"), 0o660).unwrap();
        let (sender, mut scrapes) = mpsc::channel::<Scrape>(1);
        tokio::spawn(serve(listener, sender));
        tokio::spawn(async move {
            while let Some(scrape) = scrapes.recv().await {
                scrape.answer(text.to_owned());
            }
        });
        let path = root.join("/m.sock");
        (folder, path)
    }

    async fn get(path: &Path, request: &str) -> String {
        let mut stream = UnixStream::connect(path).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn who_asks_is_answered() {
        let (_folder, path) = served(TEXT);
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let answer = get(&path, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0"));
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", TEXT.len())));
        assert_eq!(body, TEXT);
        let answer = get(
            &path,
            "HEAD /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n",
        )
        .await;
        assert!(answer.contains("text/plain; version=0.0.4") && answer.ends_with("\r\n\r\n"));
        let answer = get(&path, "GET / HTTP/1.1\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        let endless = "x".repeat(MAX_HEAD_BYTES);
        let answer = get(&path, &endless).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[tokio::test]
    async fn who_hangs_is_dropped_and_the_next_one_gets_his_place() {
        let (_folder, path) = served(TEXT);
        let start = Clock.now().uptime;
        let mut hung = Vec::new();
        for _ in 0..MAX_CLIENTS {
            hung.push(UnixStream::connect(&path).await.unwrap());
        }
        let answer = get(&path, "GET /metrics HTTP/1.1\r\n\r\n").await;
        assert!(answer.ends_with(TEXT), "{answer}");
        let took = Clock.now().uptime.saturating_sub(start);
        let late = CLIENT_DEADLINE + Duration::from_secs(2);
        assert!((CLIENT_DEADLINE..late).contains(&took), "{took:?}");
        for mut stream in hung {
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "he was dropped");
        }
    }

    #[tokio::test]
    async fn what_an_earlier_life_left_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let path = Path::new("/m.sock");
        drop(listen(&root, path, 0o666).unwrap());
        let mode = fs::symlink_metadata(root.join(path)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o666);
        drop(listen(&root, path, 0o660).unwrap());
        root.remove(path).unwrap();
        root.write_atomically(path, b"precious").unwrap();
        let error = listen(&root, path, 0o660).unwrap_err();
        assert!(error.contains("no socket"), "{error}");
        assert_eq!(root.read_text(path, 99).unwrap(), "precious");
        let error = listen(&root, Path::new("/no/m.sock"), 0o660).unwrap_err();
        assert!(error.contains("/no/m.sock"), "{error}");
    }
}
