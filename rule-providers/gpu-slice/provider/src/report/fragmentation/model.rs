use serde::Serialize;

/// The idle GPU of the cluster, and the requests of its pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fragmentation {
    /// The number of nodes whose cards are known one by one.
    pub nodes_with_cards: usize,
    /// The thousandths of cards that are free.
    pub idle_milli: i64,
    /// The expected amount of free thousandths that the next request cannot use; absent while no
    /// request is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
    /// The expected requests, the most frequent first.
    pub classes: Vec<Class>,
    /// The sums of cards that are known one by one.
    pub products: Vec<Product>,
    /// The parts of cards that pods have; absent if no agent reports their use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given: Option<Given>,
    /// The pods behind the classes.
    pub counted: Counted,
}

/// The parts of cards that pods have, on nodes whose agents report their use.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    /// The thousandths of cards that pods have.
    pub milli: i64,
    /// The thousandths of cards that pods have and hardly use at this moment.
    pub idle_milli: i64,
    /// The pods that hardly use their parts, with the largest parts first.
    pub idle_pods: Vec<String>,
}

/// A class of requests to expect.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Class {
    /// The requested CPU, in thousandths of a core.
    pub cpu_milli: i64,
    /// The requested thousandths of each card; 1000: whole cards.
    pub card_milli: u16,
    /// The requested number of cards.
    pub cards: u16,
    /// The sharing mode that the cards must have.
    pub lane: String,
    /// The model names that a card may have; empty: any card.
    pub models: Vec<String>,
    /// The class's part of all requests, from 0 to 1.
    pub share: f64,
    /// The pods with a request of the class.
    pub pods: Vec<String>,
    /// The number of requests of the class that still fit if no other requests come.
    pub still_fit: i64,
    /// The free thousandths of cards that the class cannot use.
    pub unusable_milli: i64,
    /// The numbers of nodes with cards, by fit.
    pub nodes: NodeCounts,
    /// The request in words.
    #[serde(skip)]
    pub text: String,
}

/// The number of nodes that a class can run on, and the numbers of other nodes by reason.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// The number of nodes on which the class can run.
    pub runs: usize,
    /// The number of nodes whose cards are shared in another mode.
    pub other_lane: usize,
    /// The number of nodes that have no card of the models.
    pub no_such_model: usize,
    /// The number of nodes on which too little of the cards is free.
    pub gpu_short: usize,
    /// The number of nodes on which too little CPU is free.
    pub cpu_short: usize,
}

impl NodeCounts {
    /// Formats the numbers of nodes on which the class cannot run: `2 GPU short, 1 CPU short`.
    pub fn others(&self) -> String {
        let all = [
            (self.gpu_short, "GPU short"),
            (self.cpu_short, "CPU short"),
            (self.no_such_model, "no such model"),
            (self.other_lane, "other mode"),
        ];
        let there = all.into_iter().filter(|(n, _)| *n > 0);
        let texts: Vec<String> = there.map(|(n, what)| format!("{n} {what}")).collect();
        texts.join(", ")
    }
}

/// The sums of one product in one sharing mode.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Product {
    /// The product, or `unknown`.
    pub product: String,
    /// The sharing mode.
    pub lane: String,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of cards.
    pub cards: usize,
    /// The thousandths of cards that are free.
    pub idle_milli: i64,
    /// The expected amount of free thousandths that the next request cannot use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
}

/// The pods behind the classes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counted {
    /// The number of pods with a known request.
    pub pods: usize,
    /// The number of waiting pods whose request is only in a rule of an offer.
    pub pods_by_rule: usize,
    /// The pods that request GPUs of which only the number is known.
    pub pods_not_counted: Vec<String>,
    /// The number of classes to plan for.
    pub classes: usize,
    /// The number of classes that are too rare to plan for.
    pub classes_left_out: usize,
}
