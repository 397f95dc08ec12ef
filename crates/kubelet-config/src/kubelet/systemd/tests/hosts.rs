//! The units of `tests/hosts`.

use super::*;

/// A directory on this disk as a tree.
pub(crate) fn tree_of(root: &Path) -> MemoryTree {
    let mut tree = MemoryTree::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = Path::new("/").join(path.strip_prefix(root).unwrap());
            let meta = path.symlink_metadata().unwrap();
            if meta.is_symlink() {
                tree = tree.link(name, std::fs::read_link(&path).unwrap());
            } else if meta.is_dir() {
                tree = tree.directory(name);
                directories.push(path);
            } else {
                tree = tree.file(name, std::fs::read(&path).unwrap());
            }
        }
    }
    tree
}

fn hosts() -> Vec<(String, Value, MemoryTree)> {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hosts");
    let mut names: Vec<_> =
        std::fs::read_dir(&hosts).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
        .into_iter()
        .map(|name| {
            let host = hosts.join(&name);
            let text = std::fs::read_to_string(host.join("expected.json")).unwrap();
            let tree = tree_of(&host.join("rootfs"));
            (name, serde_json::from_str(&text).unwrap(), tree)
        })
        .collect()
}

fn manager(expected: &Value) -> Manager {
    Manager {
        version: expected["host"]["systemd"].as_str().unwrap().parse().unwrap(),
        hostname: expected["host"]["hostname"].as_str().unwrap().to_owned(),
        ..Manager::default()
    }
}

/// The unit in the shape of `expected.json`.
fn shape(unit: &Unit) -> Value {
    let path = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let files: Vec<Value> = unit
        .env_files
        .iter()
        .map(|file| {
            serde_json::json!({
                "path": path(&file.path),
                "declared": file.declared.file_line(),
                "optional": file.optional,
                "state": match file.state {
                    EnvFileState::Read => "read",
                    EnvFileState::Missing => "missing",
                    EnvFileState::Skipped { .. } => "skipped",
                },
            })
        })
        .collect();
    serde_json::json!({
        "name": unit.name,
        "fragment": unit.fragment.as_ref().map(path),
        "dropins": unit.dropins.iter().map(path).collect::<Vec<_>>(),
        "env_files": files,
    })
}

#[test]
fn the_hosts_resolve_as_systemd_resolved_them() {
    let mut count = 0;
    for (host, expected, tree) in hosts() {
        let name = expected["unit"]["name"].as_str().unwrap();
        let unit = resolve_unit(&tree, name, &manager(&expected));
        assert_eq!(unit.load, LoadState::Loaded, "{host}");
        assert_eq!(shape(&unit), expected["unit"], "{host}");
        let argv: Vec<&str> = unit.argv.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(serde_json::json!(argv), expected["argv"], "{host}");
        for (name, variable) in expected["variables"].as_object().into_iter().flatten() {
            let own = &unit.variables[name];
            let overridden: Vec<Value> = own
                .overridden
                .iter()
                .map(|overridden| serde_json::json!({"at": overridden.at.file_line(), "value": overridden.value}))
                .collect();
            assert_eq!(own.effective.value, variable["value"].as_str().unwrap(), "{host} {name}");
            assert_eq!(own.effective.at.file_line(), variable["from"].as_str().unwrap(), "{host} {name}");
            assert_eq!(serde_json::json!(overridden), variable["overrides"], "{host} {name}");
            if let Some(at) = variable["referenced_at"].as_str() {
                assert_eq!(own.referenced_at[0].file_line(), at, "{host} {name}");
            }
        }
        count += 1;
    }
    assert!(count >= 10, "{count} hosts");
}

/// Every word of every host is where it says, unless quotes or a specifier changed it.
#[test]
fn words_stand_where_they_say() {
    let mut checked = 0;
    for (host, expected, tree) in hosts() {
        let unit = resolve_unit(&tree, expected["unit"]["name"].as_str().unwrap(), &manager(&expected));
        for word in &unit.argv {
            let at = word.at();
            let text = tree.read_text(Path::new(&*at.file)).unwrap();
            let line = text.split('\n').nth(at.line as usize - 1).unwrap();
            let shown: String = line.chars().skip(at.column as usize - 1).take(at.width as usize).collect();
            let plain = !word.text.is_empty() && !word.text.contains([' ', '%', '$', '\\']);
            let unquoted = shown.trim_matches(['\'', '"']);
            let as_written = plain && !unquoted.contains(['\'', '"', '\\']);
            if as_written && word.origins.iter().all(|origin| !origin.braces) {
                let prefixes = unquoted.trim_start_matches(['-', '@', ':']);
                assert!(unquoted == word.text || prefixes == word.text, "{host}: {word:?} is {shown:?}");
                checked += 1;
            }
        }
    }
    assert!(checked > 50, "{checked} words");
}
