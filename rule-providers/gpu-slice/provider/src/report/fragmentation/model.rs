use serde::Serialize;

/// The idle GPU of the cluster, and the requests of its pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fragmentation {
    /// Nodes whose cards are known one by one.
    pub nodes_with_cards: usize,
    /// Thousandths of cards that are free.
    pub idle_milli: i64,
    /// The idle GPU that the next request is expected not to be able to use;
    /// absent while no request is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
    /// The expected requests, the most frequent first.
    pub classes: Vec<Class>,
    /// Sums of cards that are known one by one.
    pub products: Vec<Product>,
    /// Absent: no agent reports what is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given: Option<Given>,
    /// The pods behind the classes.
    pub counted: Counted,
}

/// Parts of cards that pods have, on nodes whose agents report their use.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    /// Thousandths that pods have.
    pub milli: i64,
    /// The parts that are hardly used at this moment.
    pub idle_milli: i64,
    /// The pods that have them, the largest parts first.
    pub idle_pods: Vec<String>,
}

/// A class of requests to expect.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Class {
    /// Thousandths of a core.
    pub cpu_milli: i64,
    /// Thousandths of each card; 1000: whole ones.
    pub card_milli: u16,
    /// Number of cards.
    pub cards: u16,
    /// Sharing mode that the cards must have.
    pub lane: String,
    /// Model names; empty: any card.
    pub models: Vec<String>,
    /// The part of all requests, 0 to 1.
    pub share: f64,
    /// The pods with such a request.
    pub pods: Vec<String>,
    /// The number of such requests that still fit if no others come.
    pub still_fit: i64,
    /// Idle GPU that it cannot use.
    pub unusable_milli: i64,
    /// Nodes with cards, by fit.
    pub nodes: NodeCounts,
    /// The request in words.
    #[serde(skip)]
    pub text: String,
}

/// The number of nodes that a class can run on, and of others by reason.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// It can run there.
    pub runs: usize,
    /// Their cards are shared in another way.
    pub other_lane: usize,
    /// They have no card of the models.
    pub no_such_model: usize,
    /// Too little of their cards is free.
    pub gpu_short: usize,
    /// Too little CPU is free.
    pub cpu_short: usize,
}

impl NodeCounts {
    /// Where it cannot run: `2 GPU short, 1 CPU short`.
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

/// The sum of one product in one sharing mode.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Product {
    /// Product, or `unknown`.
    pub product: String,
    /// Sharing mode.
    pub lane: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of cards.
    pub cards: usize,
    /// Thousandths that are free.
    pub idle_milli: i64,
    /// Free thousandths that the next request is expected not to be able to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented_milli: Option<i64>,
}

/// The pods behind the classes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counted {
    /// Pods with a known request.
    pub pods: usize,
    /// Waiting pods whose request is only in a rule of an offer.
    pub pods_by_rule: usize,
    /// Pods that request GPUs of which only the number is known.
    pub pods_not_counted: Vec<String>,
    /// Number of classes.
    pub classes: usize,
    /// Too rare to plan for.
    pub classes_left_out: usize,
}
