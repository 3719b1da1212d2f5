import { defineDashboardExtension, HistoryEntry } from '@vendure/dashboard';

const WARNING = 'bg-warning text-warning-foreground font-bold';
const QUIET = 'bg-muted text-muted-foreground font-bold';

interface Look {
    title: string;
    icon: string;
    className: string;
}

const LOOKS: { [state: string]: Look } = {
    open: { title: 'Coins: please look at this', icon: '!', className: WARNING },
    done: { title: 'Coins: done', icon: '✓', className: QUIET },
    withdrawn: { title: 'Coins: nothing to do', icon: '–', className: QUIET },
    information: { title: 'Coins: for your information', icon: 'i', className: QUIET },
};
const OTHER: Look = { title: 'Coins', icon: '', className: QUIET };

/** A note, in which a command to copy is in quotes: one click selects all of it. */
const Note = ({ text }: { text: string }) => (
    <p className="text-sm [overflow-wrap:anywhere]">
        {text.split(/"([^"]*)"/).map((part, index) =>
            index % 2 === 0 ? (
                part
            ) : (
                <code key={index} className="rounded bg-muted p-1 text-xs break-all select-all">
                    {part}
                </code>
            ),
        )}
    </p>
);

// Without an actor: for an entry that no administrator has written, Vendure would show the name of the buyer.
defineDashboardExtension({
    historyEntries: [
        {
            type: 'SVC_PAY_NOTE',
            component: ({ entry }) => {
                const { title, icon, className } = LOOKS[entry.data.state] ?? OTHER;
                return (
                    <HistoryEntry
                        entry={entry}
                        title={title}
                        timelineIcon={icon}
                        timelineIconClassName={className}
                    >
                        <Note text={entry.data.note} />
                    </HistoryEntry>
                );
            },
        },
    ],
});
