//! The ids of user namespaces: `getKubeletMappings` and `MakeUserNsManager` of pkg/kubelet.

use std::path::Path;

use crate::kubelet::effective::Settings;
use crate::kubelet::location::{Located, Location};
use crate::kubelet::text::{find_word, numbered, small};
use crate::kubelet::tree::Tree;

/// Where the user `kubelet` exists, its subordinate ids are those of pods: why the kubelet cannot use them.
pub(super) fn problem(tree: &dyn Tree, settings: &Settings) -> Option<Located<String>> {
    let text = |path: &str| small(tree, path).unwrap_or_default();
    let is_remote = text("/etc/nsswitch.conf").lines().any(|line| line.trim_start().starts_with("subid:"));
    let user = find_word(tree, "/etc/passwd", |line| line.strip_prefix("kubelet:")?.split(':').nth(1))?;
    let ranges = |path: &str| -> Vec<Located<(i64, i64)>> {
        let range = |(number, line): (u32, &str)| {
            let [owner, first, count] = line.trim().split(':').collect::<Vec<_>>().try_into().ok()?;
            let value = (first.parse().ok()?, count.parse().ok()?);
            let is_own = owner == "kubelet" || owner == user.value;
            is_own.then(|| Located { value, at: Location::file(path).at_line(number) })
        };
        numbered(&text(path)).filter_map(range).collect()
    };
    // Each pod gets that many, or the multiple of it that idsPerPod says.
    let (step, pods) = (1 << 16, settings.int("maxPods").unwrap_or(110));
    let fits = |(first, count)| first >= step && first % step == 0 && count % step == 0 && count / step >= pods;
    let has = |name: &str| ["/usr/bin", "/usr/sbin"].iter().any(|path| tree.exists(&Path::new(path).join(name)));
    let (uids, gids) = (ranges("/etc/subuid"), ranges("/etc/subgid"));
    let is_sound = matches!((&*uids, &*gids), ([uids], [gids]) if uids.value == gids.value && fits(uids.value));
    let (value, at) = if has("useradd") && !has("getsubids") {
        ("getsubids is not installed".to_owned(), user.at)
    } else if is_remote || is_sound {
        return None;
    } else {
        let what = "/etc/subuid and /etc/subgid lack one range alike, of multiples of";
        (format!("{what} {step}, for {pods} pods"), uids.into_iter().next().map_or(user.at, |range| range.at))
    };
    Some(Located { value, at })
}
