//! A credential that came with the image: what another machine has spoken with is not ours, though its file lies here.
//!
//! The agent notes in its own folder which machine it is and a mark of the credential that it uses. An image that is made of
//! a machine carries both; on the machine that is born from it the note is another's, and the credential of that mark is left
//! alone. What was put there for this machine has another mark.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::{
    host::files::{Root, machine_id},
    kubeconfig::Access,
};

/// Where the note lies.
const NOTE: &str = "/var/lib/nodevigil/credential.json";
/// Two short texts.
const MAX_BYTES: usize = 1024;

/// The note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    machine_id: String,
    mark: String,
}

/// Whether another machine has spoken with it, as far as its note came with the image.
pub fn is_another_machines(root: &Root, access: &Access) -> bool {
    // A program that is asked for one (an exec plugin) gives each machine its own.
    access.has_credential() && is_anothers(&own(root, access), read(root).as_ref())
}

/// Whether this machine may use it; if so, that is noted. What cannot be written is not noted: then a machine born from this one
/// cannot tell.
pub fn claim(root: &Root, access: &Access) -> bool {
    if !access.has_credential() {
        return true;
    }
    let (own, noted) = (own(root, access), read(root));
    if is_anothers(&own, noted.as_ref()) {
        return false;
    }
    if !own.machine_id.is_empty()
        && noted.as_ref() != Some(&own)
        && let Ok(text) = serde_json::to_vec(&own)
    {
        root.write_atomically(NOTE, &text).ok();
    }
    true
}

fn own(root: &Root, access: &Access) -> Note {
    Note {
        machine_id: machine_id(root),
        mark: mark(access),
    }
}

fn is_anothers(own: &Note, noted: Option<&Note>) -> bool {
    noted.is_some_and(|note| note.machine_id != own.machine_id && note.mark == own.mark)
}

/// Says once in a life that it is left alone.
pub fn say(path: &std::path::Path) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        warn!(
            "kubeconfig {}: {}; going on without it",
            path.display(),
            WHY
        );
    }
}

/// Why it is left alone, and what to do.
pub const WHY: &str = "another machine has used this credential and this one was made from its image: put a credential of this \
     machine's own there, or remove /var/lib/nodevigil/credential.json if it is to be used all the same";

fn read(root: &Root) -> Option<Note> {
    let text = root.read_text(NOTE, MAX_BYTES).ok()?;
    serde_json::from_str(&text).ok()
}

/// Of what proves who speaks. Not secret, and no way back to what is.
fn mark(access: &Access) -> String {
    let mut hasher = DefaultHasher::new();
    let Access {
        certificate,
        token,
        basic,
        ..
    } = access;
    (certificate, token, basic).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(token: &str) -> Access {
        Access {
            token: Some(token.to_owned()),
            ..Access::default()
        }
    }

    #[test]
    fn what_the_parent_spoke_with_is_left_alone_and_what_is_new_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for path in ["/etc", "/var/lib/nodevigil"] {
            root.create_dir_all(path).unwrap();
        }
        let machine = |id: &str| {
            root.write_atomically("/etc/machine-id", id.as_bytes())
                .unwrap();
        };
        let (parents, own) = (access("one"), access("two"));
        // Without a note nobody is known to be the parent: an image may be given a credential that never was used.
        machine("parent\n");
        assert!(!is_another_machines(&root, &parents));
        assert!(claim(&root, &parents));
        assert!(!is_another_machines(&root, &parents));
        machine("child\n");
        assert!(is_another_machines(&root, &parents));
        assert!(!claim(&root, &parents));
        assert!(!is_another_machines(&root, &own));
        let text = root.read_text(NOTE, MAX_BYTES).unwrap();
        assert!(!text.contains("one"), "{text}");
        assert!(claim(&root, &own));
        assert!(!is_another_machines(&root, &own));
        // An image whose machines have no id yet tells nobody apart.
        machine("");
        assert!(claim(&root, &parents));
        assert!(!is_another_machines(&root, &parents));
    }
}
