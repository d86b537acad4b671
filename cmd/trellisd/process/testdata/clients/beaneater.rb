# See clients_test.go.
require 'beaneater'

port, token = ARGV
token = nil if token.to_s.empty?
$stdout.sync = true

def report
  yield
  puts 'done'
rescue StandardError => e
  puts "error #{e.class}: #{e.message.lines.first.to_s.strip}"
end

client = nil
job = lambda do
  client.tubes['billing/x'].put 'x'
  client.tubes.watch! 'billing/x'
  client.tubes.reserve(10).delete
end
start = lambda do
  client = Beaneater.new("127.0.0.1:#{port}")
  client.tubes.use("auth/#{token}") if token
  job.call
end

report(&start)
if $stdin.gets
  report(&job)
  report(&start)
end
