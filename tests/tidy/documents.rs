//! The documents: links, files and stories that they name exist, and the site has each page.

use std::fs;

use tidy::{files_with, repository};

#[test]
fn relative_links_lead_to_files_and_headings() {
    let documents = files_with("md", repository());
    let mut wrong = Vec::new();
    for document in &documents {
        for link in links(&fs::read_to_string(document).unwrap()) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let has_heading = || headings(&fs::read_to_string(&target).unwrap_or_default()).any(|id| id == anchor);
            if !target.exists() || !(anchor.is_empty() || has_heading()) {
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(documents.len() > 10, "{documents:?}");
}

#[test]
fn the_site_has_every_page_of_docs() {
    let site = repository().join("docs/site");
    let summary = fs::read_to_string(site.join("SUMMARY.md")).unwrap();
    let listed: Vec<_> = links(&summary).iter().map(|link| site.join(link).canonicalize().unwrap()).collect();
    for page in files_with("md", &repository().join("docs")) {
        let is_listed = page.starts_with(&site) || listed.contains(&page.canonicalize().unwrap());
        assert!(is_listed, "{} is not in docs/site/SUMMARY.md", page.display());
    }
}

#[test]
#[ignore = "`make site` runs it, on what it has built"]
fn links_of_the_site_lead_to_files_and_headings() {
    let pages = files_with("html", &repository().join("dist/site"));
    let mut wrong = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        let attributes = text.split(" href=\"").skip(1).chain(text.split(" src=\"").skip(1));
        for link in attributes.filter_map(|rest| rest.split('"').next()).filter(|link| is_relative(link)) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let has_anchor = || fs::read_to_string(&target).unwrap().contains(&format!(" id=\"{anchor}\""));
            if !target.is_file() || !(anchor.is_empty() || has_anchor()) {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(pages.len() > 20, "{pages:?}");
}

#[test]
fn the_files_that_documents_name_exist() {
    let mut named = 0;
    for document in files_with("md", repository()) {
        let text = fs::read_to_string(&document).unwrap();
        let outside_blocks: String = text.split("```").step_by(2).collect();
        for path in outside_blocks.split('`').skip(1).step_by(2).filter(|span| is_file_of_ours(span)) {
            assert!(repository().join(path).exists(), "{} names {path}, which does not exist", document.display());
            named += 1;
        }
    }
    assert!(named > 50, "{named} files are named");
}

fn is_file_of_ours(span: &str) -> bool {
    let is_below =
        ["src/", "crates/", "tests/", "docs/", "packaging/"].iter().any(|directory| span.starts_with(directory));
    is_below && !span.contains(|c: char| c.is_whitespace() || c == '*' || c == ':')
}

#[test]
fn the_stories_that_the_architecture_names_exist() {
    let stories = files_with("rs", &repository().join("tests/e2e/src/stories"));
    let sources: String = stories.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let invariants = text.split("\n## Invariants\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut named = 0;
    for name in invariants.split('`').skip(1).step_by(2).filter(|name| name.contains("::")) {
        assert!(
            sources.contains(&format!("\"{name}\"")),
            "ARCHITECTURE.md names the story {name}, which does not exist"
        );
        named += 1;
    }
    assert!(named >= 10, "{named} stories are named");
}

/// The targets of links to other documents, outside blocks and spans of code.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|link| is_relative(link)).map(str::to_owned).collect()
}

fn is_relative(link: &str) -> bool {
    !link.contains("://") && !link.starts_with("mailto:")
}

/// The text without code.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).flat_map(|part| part.split('`').step_by(2)).collect()
}

/// The anchors that GitHub gives to headings.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut is_code = false;
    let lines = text.lines().filter(move |line| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code && line.starts_with('#')
    });
    lines.map(|line| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        kept.chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}
