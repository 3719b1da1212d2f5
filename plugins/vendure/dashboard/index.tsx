import { defineDashboardExtension, HistoryEntry } from '@vendure/dashboard';

const TITLES: { [state: string]: string } = {
    open: 'Coins: please look at this',
    done: 'Coins: done',
    withdrawn: 'Coins: nothing to do',
    information: 'Coins: for your information',
};

// Without an actor: for an entry that no administrator has written, Vendure would show the name of the buyer.
defineDashboardExtension({
    historyEntries: [
        {
            type: 'SVC_PAY_NOTE',
            component: ({ entry }) => (
                <HistoryEntry
                    entry={entry}
                    title={TITLES[entry.data.state] ?? 'Coins'}
                    timelineIconClassName={
                        entry.data.state === 'open'
                            ? 'bg-warning text-warning-foreground'
                            : 'bg-muted text-muted-foreground'
                    }
                >
                    <p className="text-sm [overflow-wrap:anywhere]">{entry.data.note}</p>
                </HistoryEntry>
            ),
        },
    ],
});
