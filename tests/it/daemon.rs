//! The daemon outside systemd, without a bus, an API or a helper: a kubelet by pid file, its end in `status.json`.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);

/// Ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A program named `kubelet` that sleeps, and a thread that answers for it.
fn kubelet(dir: &Path) -> (Running, String) {
    let program = dir.join("kubelet");
    fs::copy("/bin/sleep", &program).unwrap();
    let child = Command::new(&program).arg("600").spawn().unwrap();
    fs::write(dir.join("kubelet.pid"), child.id().to_string()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/healthz", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                while stream.read(&mut [0; 1024]).is_ok_and(|n| n > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (Running(child), url)
}

fn daemon(dir: &Path, url: &str) -> Running {
    let config = dir.join("50-test.toml");
    let pid_file = dir.join("kubelet.pid");
    let text = format!(
        "[node]\nname = \"n1\"\n[kubelet]\npid_file = \"{}\"\nhealthz_url = \"{url}\"\n[kubernetes]\nkubeconfig = \"/does/not/exist\"\n",
        pid_file.display()
    );
    fs::write(&config, text).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_nodevigil"))
        // All the *.toml of the folder, by name.
        .args(["run", "--config", dir.to_str().unwrap()])
        .env("RUNTIME_DIRECTORY", dir)
        .env_remove("NOTIFY_SOCKET")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Running(child)
}

/// The status file, once it is as wanted.
fn status_when(dir: &Path, wanted: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(dir.join("status.json")).unwrap_or_default();
        let status: Value = serde_json::from_str(&text).unwrap_or_default();
        if wanted(&status) {
            return status;
        }
        assert!(start.elapsed() < SOON, "not as wanted: {status:#}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn has_reason(status: &Value, reason: &str) -> bool {
    status["conditions"][0]["reason"] == reason
}

#[test]
fn a_kubelet_by_pid_file_is_watched_alone_and_through_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (mut kubelet, url) = kubelet(dir.path());
    let running = daemon(dir.path(), &url);
    let status = status_when(dir.path(), |status| {
        has_reason(status, "KubeletIsHealthy") && status["identity"]["kind"] == "none"
    });
    assert_eq!(status["node"], "n1");
    assert!(
        status["identity"]["detail"]
            .as_str()
            .unwrap()
            .contains("/does/not/exist")
    );

    kubelet.0.kill().unwrap();
    kubelet.0.wait().unwrap();
    let status = status_when(dir.path(), |status| has_reason(status, "KubeletGone"));
    let condition = &status["conditions"][0];
    assert_eq!(condition["status"], "False");
    let since = condition["last_transition_time"].clone();

    // A new life of the agent knows what the last one said: the ledger has it.
    drop(running);
    fs::remove_file(dir.path().join("status.json")).unwrap();
    let _running = daemon(dir.path(), &url);
    let status = status_when(dir.path(), |status| status["conditions"][0].is_object());
    assert_eq!(
        status["conditions"][0]["status"], "False",
        "it has no process to look at"
    );
    assert_eq!(status["conditions"][0]["last_transition_time"], since);
}

/// What the daemon's socket in `dir` says.
fn scrape(dir: &Path) -> String {
    let mut stream = UnixStream::connect(dir.join("metrics.sock")).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body.to_owned()
}

#[test]
fn in_the_shadow_the_metrics_say_what_would_be_published() {
    // The text file is written to memory alone.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (mut kubelet, url) = kubelet(dir.path());
    let settings = format!(
        "[metrics]\ntextfile_dir = \"{}\"\ntextfile_interval_secs = 5\n[kubernetes]\npublish = \"none\"\n",
        dir.path().display()
    );
    fs::write(dir.path().join("50-metrics.toml"), settings).unwrap();
    let _running = daemon(dir.path(), &url);
    status_when(dir.path(), |status| has_reason(status, "KubeletIsHealthy"));
    let healthy = "nodevigil_condition_status{condition=\"KubeletHealthy\",status=\"true\"} 1\n";
    let text = scrape(dir.path());
    for line in [healthy, "nodevigil_shadow 1\n", "# EOF\n"] {
        assert!(text.contains(line), "no {line} in {text}");
    }
    for absent in ["nodevigil_last_heartbeat", "peer=\"api\"", "peer=\"bus\""] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    kubelet.0.kill().unwrap();
    kubelet.0.wait().unwrap();
    status_when(dir.path(), |status| has_reason(status, "KubeletGone"));
    let dead = "nodevigil_condition_reason_info{condition=\"KubeletHealthy\",reason=\"KubeletGone\",severity=\"failed\"} 1\n";
    assert!(scrape(dir.path()).contains(dead));
    let file = dir.path().join("nodevigil.prom");
    let start = Instant::now();
    while !fs::read_to_string(&file).is_ok_and(|text| text.contains(dead)) {
        assert!(start.elapsed() < SOON, "the text file does not say so");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(!fs::read_to_string(&file).unwrap().contains("# EOF"));
}

#[test]
fn sigterm_ends_it_with_success() {
    let dir = tempfile::tempdir().unwrap();
    let (_kubelet, url) = kubelet(dir.path());
    let mut running = daemon(dir.path(), &url);
    status_when(dir.path(), |status| has_reason(status, "KubeletIsHealthy"));
    let pid = nix::unistd::Pid::from_raw(i32::try_from(running.0.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    running
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    assert!(log.contains("stopping"), "{log}");
}
