//! BM25 over the words of tools.
//!
//! A word counts the more, the fewer tools have it, and the higher its weight in a tool; the second with diminishing
//! returns, and less in a tool with many words. See Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25
//! and Beyond" (2009), section 3.5: weights of fields are added before they saturate.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::entry::IndexEntry;
use super::words::words;
use super::{Error, SearchQuery, answer, groups};
use crate::ground::text::{listed, nearest, one_line};
use crate::tools::codegen::{self, Tool};

/// The saturation by more of the same word, and the discount of long texts.
const K1: f32 = 2.0;
const B: f32 = 0.4;
/// The gain of a tool if all words of its name are in the query.
const NAMED: f32 = 0.25;
/// Hits below this part of the best one are left out: they share a common word with the query, and no more.
const FAR: f32 = 0.3;
/// The number of tools that are suggested if none has a word of the query.
const SUGGESTED: usize = 5;
/// The most words of a query that count, and of those without a tool that are compared with the words of tools.
const WORDS: usize = 64;
const COMPARED: usize = 8;

/// The tools of all servers.
#[derive(Debug, Default)]
pub struct Index {
    entries: Vec<IndexEntry>,
    /// The range of each server's entries among them.
    servers: BTreeMap<String, Range<usize>>,
    /// The tools that have a word, and what it counts there.
    postings: HashMap<String, Vec<(u32, f32)>>,
}

impl Index {
    /// An index of the tools of `servers`, which are in order.
    pub fn new<'t>(servers: impl IntoIterator<Item = (&'t str, &'t [Tool])>) -> Self {
        let mut index = Self::default();
        let mut lengths = Vec::new();
        for (server, tools) in servers {
            let begin = index.entries.len();
            for (tool, module) in tools.iter().zip(codegen::module_names(tools)) {
                let (entry, words) = IndexEntry::new(server, tool, module);
                let number = u32::try_from(index.entries.len()).unwrap_or(u32::MAX);
                index.entries.push(entry);
                lengths.push(words.values().sum::<f32>());
                for (word, weight) in words {
                    index.postings.entry(word).or_default().push((number, weight));
                }
            }
            index.servers.insert(server.to_owned(), begin..index.entries.len());
        }
        index.weigh(&lengths);
        index
    }

    /// Makes what a word counts of its weights, for tools whose words have these weights together.
    fn weigh(&mut self, lengths: &[f32]) {
        let count = lengths.len() as f32;
        let average = lengths.iter().sum::<f32>() / count.max(1.0);
        for tools in self.postings.values_mut() {
            let have = tools.len() as f32;
            let rarity = (1.0 + (count - have + 0.5) / (have + 0.5)).ln();
            for (number, weight) in tools {
                let length = 1.0 - B + B * lengths[*number as usize] / average;
                *weight = rarity * *weight * (K1 + 1.0) / (*weight + K1 * length);
            }
        }
    }

    /// Answers a query, as text for a model.
    ///
    /// # Errors
    /// The query is out of bounds, or names a server that is not there.
    pub fn search(&self, query: &SearchQuery) -> Result<String, Error> {
        super::check(query)?;
        let within = match &query.server {
            Some(name) => self.servers.get(name).cloned().ok_or_else(|| self.unknown(name))?,
            None => 0..self.entries.len(),
        };
        let asked = words(&query.query);
        if asked.is_empty() {
            return Ok(match &query.server {
                Some(name) => groups::of_server(name, &self.entries[within]),
                None => groups::of_all(&self.servers),
            });
        }
        let hits = self.hits(&asked, &within);
        if !hits.is_empty() {
            return Ok(answer::of_hits(&self.best(hits, query.limit), query.detail, query.limit));
        }
        let near = self.best(self.hits(&self.near(&asked), &within), SUGGESTED);
        Ok(answer::of_nothing(query, &near, within.len()))
    }

    /// The tools `within` that have words of the query, with their scores.
    fn hits(&self, asked: &[String], within: &Range<usize>) -> Vec<(f32, u32)> {
        let mut scores = vec![0.0_f32; self.entries.len()];
        for word in &asked[..asked.len().min(WORDS)] {
            for (number, weight) in self.postings.get(word).into_iter().flatten() {
                scores[*number as usize] += weight;
            }
        }
        let mut best = 0.0_f32;
        for (score, entry) in scores[within.clone()].iter_mut().zip(&self.entries[within.clone()]) {
            if *score > 0.0 && entry.name.iter().all(|word| asked.contains(word)) {
                *score *= 1.0 + NAMED;
            }
            best = best.max(*score);
        }
        let scored = (0..).zip(scores).skip(within.start).take(within.len());
        let near = scored.filter(|(_, score)| *score > 0.0 && *score >= FAR * best);
        near.map(|(number, score)| (score, number)).collect()
    }

    /// The best of the hits, in order; of equals the first.
    fn best(&self, mut hits: Vec<(f32, u32)>, most: usize) -> Vec<&IndexEntry> {
        let by_score =
            |one: &(f32, u32), other: &(f32, u32)| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1));
        if hits.len() > most {
            hits.select_nth_unstable_by(most, by_score);
            hits.truncate(most);
        }
        hits.sort_unstable_by(by_score);
        hits.into_iter().map(|(_, number)| &self.entries[number as usize]).collect()
    }

    /// The words of tools that are most like those of the query, and those that begin like them.
    fn near(&self, asked: &[String]) -> Vec<String> {
        let mut known: Vec<&str> = self.postings.keys().map(String::as_str).collect();
        known.sort_unstable();
        let near = asked.iter().take(COMPARED).flat_map(|word| {
            let begins = known.iter().filter(|known| {
                known.len() > 2 && (known.starts_with(word.as_str()) || word.starts_with(**known))
            });
            nearest(word, known.iter().copied()).into_iter().chain(begins.copied()).collect::<Vec<_>>()
        });
        near.take(WORDS).map(str::to_owned).collect()
    }

    fn unknown(&self, name: &str) -> Error {
        let near = nearest(name, self.servers.keys().map(String::as_str));
        let hint = match near.as_slice() {
            [] => String::new(),
            near => format!("; did you mean {}?", listed(near.iter().copied())),
        };
        Error::UnknownServer { name: one_line(name), hint }
    }
}
