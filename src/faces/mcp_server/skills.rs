//! The skills that the server has for every client ([SEP-2640](https://modelcontextprotocol.io/seps/2640-skills-extension)).
//!
//! There is one, `codeact`, which Claude Code's plugins bring too. Its files are part of the program.

use rmcp::ErrorData;
use rmcp::model::{
    GetSkillResult, ListSkillsResult, Resource, ResourceContents, Skill, SkillFrontmatter, SkillResource,
    SkillResources,
};
use serde_json::json;

use crate::config::{Config, KernelSite};

const NAME: &str = "codeact";
const ENTRY: &str = "skill://codeact/SKILL.md";
const MARKDOWN: &str = "text/markdown";

/// The entry of the skill, without the section about where code runs.
const TEXT: &str = include_str!("../../../packaging/plugins/skills/codeact/SKILL.md");
/// The mark of the place of that section.
const FLAVOUR_MARK: &str = "<!-- flavour -->\n";

/// Further files of the skill.
const FILES: [(&str, &str); 2] = [
    (
        "skill://codeact/references/saving-actions.md",
        include_str!("../../../packaging/plugins/skills/codeact/references/saving-actions.md"),
    ),
    (
        "skill://codeact/references/typed-results.md",
        include_str!("../../../packaging/plugins/skills/codeact/references/typed-results.md"),
    ),
];

/// The skills of a server.
pub(super) struct ServerSkills {
    frontmatter: SkillFrontmatter,
    text: String,
}

impl ServerSkills {
    /// Those for kernels that run where the configuration says.
    pub(super) fn new(config: &Config) -> Self {
        Self::with_section(section(config))
    }

    fn with_section(section: &str) -> Self {
        let text = TEXT.replace(FLAVOUR_MARK, section);
        Self { frontmatter: frontmatter(&text), text }
    }

    /// The skill with its files' digests, which few clients want: they would be a fifth of the work of starting.
    fn skill(&self) -> Skill {
        let entry = [(ENTRY, self.text.as_str())];
        let files = entry.into_iter().chain(FILES);
        let files = files.map(|(uri, text)| SkillResource::from_bytes(uri, text.as_bytes())).collect();
        Skill::new(ENTRY, self.frontmatter.clone(), SkillResources::Files(files))
    }

    /// All skills.
    pub(super) fn list(&self) -> ListSkillsResult {
        ListSkillsResult::with_all_items(vec![self.skill()])
    }

    /// One skill, by the URI of its entry.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn get(&self, uri: &str) -> Result<GetSkillResult, ErrorData> {
        if uri != ENTRY {
            let message = format!("there is no skill at this URI; there is `{ENTRY}`");
            return Err(ErrorData::invalid_params(message, Some(json!({ "uri": uri }))));
        }
        Ok(GetSkillResult::new(self.skill()))
    }

    /// The files that lists of resources have: the entries, which refer to the others.
    pub(super) fn resources(&self) -> Vec<Resource> {
        let resource = Resource::new(ENTRY, NAME).with_title("Skill: act by code").with_mime_type(MARKDOWN);
        let description = &self.frontmatter.description;
        vec![resource.with_description(description).with_size(self.text.len() as u64)]
    }

    /// A file, by its URI.
    pub(super) fn read(&self, uri: &str) -> Option<ResourceContents> {
        let text = match uri {
            ENTRY => self.text.as_str(),
            _ => FILES.iter().find(|(file, _)| *file == uri)?.1,
        };
        Some(ResourceContents::text(text, uri).with_mime_type(MARKDOWN))
    }
}

/// The skill's section about where code runs.
fn section(config: &Config) -> &'static str {
    match &config.site {
        KernelSite::Remote(_) | KernelSite::Pod(_) => {
            include_str!("../../../packaging/plugins/flavours/remote.md")
        }
        KernelSite::Sandboxed { .. } => include_str!("../../../packaging/plugins/flavours/sandbox.md"),
        KernelSite::Local if config.is_in_container() => {
            include_str!("../../../packaging/plugins/flavours/docker.md")
        }
        KernelSite::Local => include_str!("../../../packaging/plugins/flavours/default.md"),
    }
}

/// The frontmatter of the entry, which has simple lines of `name: value` alone.
fn frontmatter(text: &str) -> SkillFrontmatter {
    let lines = text.lines().skip(1).take_while(|line| *line != "---");
    let mut frontmatter = SkillFrontmatter::new("", "");
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        match name {
            "name" => frontmatter.name = value.to_owned(),
            "description" => frontmatter.description = value.to_owned(),
            other => drop(frontmatter.extra.insert(other.to_owned(), json!(value))),
        }
    }
    frontmatter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skills() -> ServerSkills {
        ServerSkills::with_section("## Where the code runs\n\nHere.\n")
    }

    #[test]
    fn the_skill_is_as_the_specification_wants_it() {
        let skills = skills();
        skills.skill().validate().unwrap();
        let SkillResources::Files(files) = skills.skill().resources else { panic!("it is dynamic") };
        for file in files {
            let Some(ResourceContents::TextResourceContents { text, .. }) = skills.read(&file.uri) else {
                panic!("{} cannot be read", file.uri);
            };
            file.verify(text.as_bytes()).unwrap();
        }
        assert_eq!(skills.read("skill://codeact/references/other.md"), None);
        assert_eq!(skills.get(ENTRY).unwrap().skill, skills.skill());
        assert!(skills.get("skill://other/SKILL.md").unwrap_err().message.contains(ENTRY));
    }

    #[test]
    fn the_skill_has_every_file_of_the_plugins() {
        let directory =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/plugins/skills/codeact");
        let references = std::fs::read_dir(directory.join("references")).unwrap().map(|entry| {
            format!("skill://codeact/references/{}", entry.unwrap().file_name().to_str().unwrap())
        });
        let mut references: Vec<String> = references.collect();
        references.sort();
        assert_eq!(references, FILES.map(|(uri, _)| uri.to_owned()));
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 2);
    }

    #[test]
    fn the_frontmatter_is_that_of_the_text() {
        let skills = skills();
        let frontmatter = &skills.frontmatter;
        assert!(
            TEXT.starts_with(&format!("---\nname: {NAME}\ndescription: {}\n---\n", frontmatter.description))
        );
        assert!(frontmatter.extra.is_empty());
        // YAML reads a plain text as it is unless it has one of these.
        assert!(!frontmatter.description.contains([':', '#']), "{}", frontmatter.description);
        assert!(
            skills.text.contains("## Where the code runs\n\nHere.\n") && !skills.text.contains(FLAVOUR_MARK)
        );
    }
}
