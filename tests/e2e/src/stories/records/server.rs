//! An HTTPS server for records, outside of the nodes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::scene::{ObservedNode, Scene};
use crate::support::daemon::Daemon;
use crate::support::namespaces::{self, ADDRESS};
use crate::support::node::NodeBuilder;
use crate::support::{WAIT, repository, wait_until};

/// It wants a token and a header.
#[derive(Debug)]
pub struct RecordServer {
    directory: PathBuf,
    port: u16,
    daemon: Daemon,
}

impl RecordServer {
    /// Starts one with the API server's certificate that refuses so many requests at first.
    pub fn start(scene: &Scene, refuses: u32) -> Result<Self> {
        let directory = namespaces::work().join(format!("records-{}", scene.node_name()));
        fs::create_dir_all(&directory)?;
        let [certificate, key] = scene.plane().serving_certificate();
        let port = namespaces::port();
        let program = repository().join("tests/e2e/src/stories/records/server.py");
        let [program, kept] = [&program, &directory].map(|path| path.display().to_string());
        let arguments = [program, port.to_string(), certificate, key, kept, refuses.to_string()];
        let daemon = Daemon::start(&directory, Path::new("/usr/bin/python3"), &arguments)?;
        Ok(Self { directory, port, daemon })
    }

    /// Has a node send its records to the server, once [`Self::allow`] was called.
    pub fn of(&self, node: NodeBuilder) -> NodeBuilder {
        let settings = format!(
            "[records]\nupload_url = \"https://{ADDRESS}:{}/of/{{node}}/{{record}}.json\"\n\
             upload_token_file = \"/etc/nodevigil/token\"\nupload_headers_file = \"/etc/nodevigil/headers\"\n\
             upload_ca_file = \"/etc/kubernetes/pki/ca.crt\"\n",
            self.port
        );
        node.file("/etc/nodevigil/config.d/70-records.toml", &settings)
            .file("/etc/nodevigil/token", "of-the-story\n")
            .file("/etc/nodevigil/headers", "X-Story: one\n")
    }

    /// Makes the node's token and header readable for root alone.
    pub fn allow(node: &ObservedNode) -> Result<()> {
        node.sh("chmod 600 /etc/nodevigil/token /etc/nodevigil/headers").map(drop)
    }

    /// The node's record of that name, once the server has it.
    pub fn wait_for(&self, node: &ObservedNode, name: &str) -> Result<Value> {
        let path = self.directory.join("of").join(node.name()).join(name).with_added_extension("json");
        let text = wait_until(&format!("the server to have {name}"), WAIT, || {
            Ok(fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')))
        })
        .with_context(|| self.daemon.log())?;
        serde_json::from_str(&text).with_context(|| format!("taken twice, or something else: {text}"))
    }
}
