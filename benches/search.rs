//! Measures the search for tools, without a model: `cargo bench --bench search -- SERVERS [ANSWERS]`.
//!
//! SERVERS is a directory of saved `tools/list` results, one file for each server. All of them are searched together. The
//! queries are made from the first sentences of the descriptions, by three rules:
//!
//! - sentence: its first twelve words;
//! - words: its first five words that have at least four letters;
//! - blind: its first five such words that are no part of the tool's or the server's name, nor contain a word of it; tools
//!   with fewer than three of them are left out.
//!
//! Further queries are the requests of `search_requests.txt`, each with the tools that fit, in free words. The ranking and its
//! synonyms were chosen by the answers to the first ones and to those tuned on; nobody has looked at the answers to those
//! held out, which were written and divided from the others before that.
//!
//! A tool is found if the answer has it, or another tool whose description begins with the same sentence. ANSWERS is a file
//! for all answers with the default limit, a JSON text on each line, in which tokens can be counted. The times
//! are for 5,000 tools: the same servers several times, under other names.

#![allow(clippy::print_stdout, reason = "a tool for developers")]

use std::error::Error;
use std::time::{Duration, Instant};
use std::{env, fs};

use ipybox::codegen::Tool;
use ipybox::{SearchIndex, SearchQuery};
use serde_json::Value;

/// Requests, each with the tools that fit.
const REQUESTS: &str = include_str!("search_requests.txt");

/// The sizes of answers for which recall is measured.
const SIZES: [usize; 4] = [1, 5, 8, 10];

/// How many tools the times are for.
const MANY: usize = 5_000;

struct Server {
    name: String,
    tools: Vec<Tool>,
}

fn main() -> Result<(), Box<dyn Error>> {
    // What Cargo adds.
    let mut args = env::args().skip(1).filter(|arg| arg != "--bench");
    let servers = read(&args.next().ok_or("SERVERS")?)?;
    let answers = args.next();
    let index = index(&servers);
    let mut kept = String::new();
    let mut queries = Vec::new();
    println!(
        "| queries | count | recall@1 | recall@5 | recall@8 | recall@10 | answer, bytes: median, p90, most |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (rule, make) in [("sentence", sentence as Rule), ("words", words), ("blind", blind)] {
        let mut ranks = Vec::new();
        let mut bytes = Vec::new();
        for server in &servers {
            for tool in &server.tools {
                let Some(text) = make(server, tool) else { continue };
                ranks.push(rank(&index, &servers, tool, &text)?);
                let answer = index.search(&SearchQuery::new(&text))?;
                bytes.push(answer.len());
                kept += &(serde_json::to_string(&answer)? + "\n");
                queries.push(text);
            }
        }
        bytes.sort_unstable();
        println!(
            "| {rule} | {} | {} | {}, {}, {} |",
            ranks.len(),
            recalls(&ranks).join(" | "),
            bytes[bytes.len() / 2],
            bytes[bytes.len() * 9 / 10],
            bytes[bytes.len() - 1],
        );
    }
    for part in REQUESTS.split("# ").filter(|part| !part.is_empty()) {
        let (name, requests) = part.split_once('\n').ok_or("a part without requests")?;
        let mut ranks = Vec::new();
        for line in requests.lines() {
            let (text, tools) = line.split_once('|').ok_or("a request without tools")?;
            let names: Vec<_> = tools.split_whitespace().map(plain).collect();
            ranks.push(place(&index, text, |server, module| {
                names.contains(&plain(&format!("{server}{module}")))
            })?);
            kept += &(serde_json::to_string(&index.search(&SearchQuery::new(text))?)? + "\n");
        }
        println!("| requests, {name} | {} | {} | |", ranks.len(), recalls(&ranks).join(" | "));
    }
    if let Some(path) = answers {
        fs::write(path, kept)?;
    }
    measure(servers, &queries)
}

/// Makes a query for a tool.
type Rule = fn(&Server, &Tool) -> Option<String>;

fn sentence(_: &Server, tool: &Tool) -> Option<String> {
    let words: Vec<_> = first_sentence(tool).split_whitespace().take(12).map(str::to_owned).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn words(_: &Server, tool: &Tool) -> Option<String> {
    let words: Vec<_> = long_words(&first_sentence(tool)).take(5).collect();
    (words.len() > 1).then(|| words.join(" "))
}

fn blind(server: &Server, tool: &Tool) -> Option<String> {
    let names = format!("{} {}", server.name, tool.name).to_lowercase();
    let parts: Vec<_> =
        names.split(|character: char| !character.is_alphanumeric()).filter(|part| part.len() > 2).collect();
    let is_news =
        |word: &String| !names.contains(word.as_str()) && !parts.iter().any(|part| word.contains(part));
    let words: Vec<_> = long_words(&first_sentence(tool)).filter(is_news).take(5).collect();
    (words.len() > 2).then(|| words.join(" "))
}

fn long_words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|character: char| !character.is_alphanumeric());
    words.filter(|word| word.chars().count() >= 4).map(str::to_lowercase).collect::<Vec<_>>().into_iter()
}

fn first_sentence(tool: &Tool) -> String {
    let text = tool.description.as_deref().unwrap_or_default().trim();
    let line = text.lines().next().unwrap_or_default();
    line.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned()
}

/// The size of the smallest answer that has the tool.
fn rank(index: &SearchIndex, servers: &[Server], tool: &Tool, text: &str) -> Result<usize, Box<dyn Error>> {
    let wanted = first_sentence(tool);
    place(index, text, |server, module| {
        let server = servers.iter().find(|known| known.name == server);
        let found =
            server.and_then(|server| server.tools.iter().find(|known| plain(&known.name) == plain(module)));
        found.is_some_and(|found| first_sentence(found) == wanted)
    })
}

/// The size of the smallest answer with a tool that `is_wanted`, by server and module.
fn place(
    index: &SearchIndex,
    text: &str,
    is_wanted: impl Fn(&str, &str) -> bool,
) -> Result<usize, Box<dyn Error>> {
    for limit in SIZES {
        let mut query = SearchQuery::new(text);
        query.limit = limit;
        let answer = index.search(&query)?;
        let is_tool =
            |path: &str| path.split_once('.').is_some_and(|(server, module)| is_wanted(server, module));
        if answer.lines().flat_map(paths).any(is_tool) {
            return Ok(limit);
        }
    }
    Ok(usize::MAX)
}

/// The tools that a line of an answer shows, or names because they did not fit into it.
fn paths(line: &str) -> Vec<&str> {
    if let Some(names) = line.strip_prefix("also: ") {
        return names.split([',', ' ']).collect();
    }
    line.split([':', '(']).next().map(|path| path.trim_end_matches(".run")).into_iter().collect()
}

/// A name without what Python changes in it.
fn plain(name: &str) -> String {
    name.to_lowercase().replace(|character: char| !character.is_alphanumeric(), "")
}

fn recalls(ranks: &[usize]) -> [String; 4] {
    SIZES.map(|most| {
        let found = ranks.iter().filter(|rank| **rank <= most).count();
        format!("{:.3}", found as f64 / ranks.len().max(1) as f64)
    })
}

fn measure(servers: Vec<Server>, queries: &[String]) -> Result<(), Box<dyn Error>> {
    let mut many: Vec<Server> = Vec::new();
    let mut left = MANY;
    for copy in 0.. {
        for server in &servers {
            let tools: Vec<_> = server.tools.iter().take(left).cloned().collect();
            left -= tools.len();
            many.push(Server { name: format!("{}_{copy}", server.name), tools });
        }
        if left == 0 {
            break;
        }
    }
    let before = resident_kib();
    let begin = Instant::now();
    let index = index(&many);
    let grown = resident_kib().zip(before).map(|(after, before)| after.saturating_sub(before));
    println!("\n{MANY} tools: indexed in {:?}, {} KiB", begin.elapsed(), grown.unwrap_or_default());
    let mut times = Vec::new();
    for text in queries.iter().step_by(7) {
        let begin = Instant::now();
        index.search(&SearchQuery::new(text))?;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    let at = |part: usize| -> Duration { times[(times.len() - 1) * part / 100] };
    println!("{} queries: median {:?}, p99 {:?}, most {:?}", times.len(), at(50), at(99), at(100));
    Ok(())
}

/// The memory of this process; `None` where there is no `/proc`.
fn resident_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
}

fn index(servers: &[Server]) -> SearchIndex {
    SearchIndex::new(servers.iter().map(|server| (server.name.as_str(), server.tools.as_slice())))
}

fn read(directory: &str) -> Result<Vec<Server>, Box<dyn Error>> {
    let mut paths: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    paths.sort_by_key(|entry| entry.path());
    let servers = paths.into_iter().map(|entry| {
        let path = entry.path();
        let list: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let name = path.file_stem().and_then(|stem| stem.to_str()).ok_or("name")?.to_owned();
        let tools = list["tools"].as_array().ok_or("tools")?.iter().map(tool).collect();
        Ok(Server { name, tools })
    });
    servers.collect()
}

fn tool(listed: &Value) -> Tool {
    let text = |key: &str| listed[key].as_str().map(str::to_owned);
    Tool {
        name: text("name").unwrap_or_default(),
        title: text("title"),
        description: text("description"),
        input_schema: listed["inputSchema"].as_object().cloned().unwrap_or_default(),
        output_schema: listed["outputSchema"].as_object().cloned(),
        observed: None,
    }
}
